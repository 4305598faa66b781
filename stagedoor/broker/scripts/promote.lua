#!lua flags=allow-oom
-- promote: put delayed jobs that are due back into their streams.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  zset     <ns>:delayed         member → due time in ms
-- KEYS[4]  hash     <ns>:delayed:body    member → packed stream number and fields
-- KEYS[5]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  most, members to move per call
-- ARGV[3]  dead_maxlen, entries
-- Reply    {moved, wait, pool, broken}: wait = ms until the next member is due, 0 when more are due now,
--          -1 when there is none; pool = entries in the pool; broken = members whose body could not be used,
--          now dead letters
-- Invariant: a member leaves the set only after its entry is in the stream.
-- Fence: none is needed: the move is atomic, whoever comes second finds nothing.
-- Cost: O(most · log delayed + consumers).
-- include: _fence.lua
local group, now = ARGV[1], now_ms()

-- Returns the stream's key and the flat fields, or nil when these bytes are not a packed body.
local function unpacked(body)
  local parts, at = {}, 1
  while at <= #body do
    local colon = string.find(body, ':', at, true)
    local length = colon and tonumber(string.sub(body, at, colon - 1))
    if not length or string.sub(body, colon + length + 1, colon + length + 1) ~= ',' then return nil end
    parts[#parts + 1] = string.sub(body, colon + 1, colon + length)
    at = colon + length + 2
  end
  local stream = KEYS[tonumber(parts[1])]
  if #parts < 3 or #parts % 2 == 0 or (stream ~= KEYS[1] and stream ~= KEYS[2]) then return nil end
  return stream, parts
end

local moved, broken = 0, 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local body = redis.call('HGET', KEYS[4], member)
  local stream, parts
  if body then stream, parts = unpacked(body) end
  if stream then
    redis.call('XADD', stream, '*', unpack(parts, 2, #parts))
    moved = moved + 1
  else
    redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[3], '*', 'reason', 'malformed',
      'error', 'the delayed body is missing or cannot be unpacked',
      'stream', '', 'entry_id', member, 'consumer', '', 'fields', body or '')
    broken = broken + 1
  end
  redis.call('ZREM', KEYS[3], member)
  redis.call('HDEL', KEYS[4], member)
end

local wait, first = -1, redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if #first > 0 then wait = math.max(0, math.ceil(tonumber(first[2]) - now)) end

local pool = 0
for number = 1, 2 do
  local pending = redis.pcall('XPENDING', KEYS[number], group)
  for _, of in ipairs(not pending.err and pending[4] or {}) do
    if of[1] == '~pool' then pool = pool + tonumber(of[2]) end
  end
end
return {moved, wait, pool, broken}
