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
    local digits = string.match(body, '^(%d+):', at)
    local colon, length = at + #(digits or ''), tonumber(digits)
    if not digits or string.sub(body, colon + length + 1, colon + length + 1) ~= ',' then return nil end
    parts[#parts + 1] = string.sub(body, colon + 1, colon + length)
    at = colon + length + 2
  end
  local stream = KEYS[tonumber(parts[1])]
  -- More than 1,000 fields nobody of ours has written, and Lua cannot pass many thousands on.
  if #parts < 3 or #parts > 2001 or #parts % 2 == 0 or (stream ~= KEYS[1] and stream ~= KEYS[2]) then return nil end
  return stream, parts
end

-- Makes a dead letter of a member without a usable body; returns whether it could.
local function bury_broken(member, body)
  local written = redis.pcall('XADD', KEYS[5], 'MAXLEN', '~', ARGV[3], '*', 'reason', 'malformed',
    'error', 'the delayed body is missing or cannot be unpacked',
    'stream', '', 'entry_id', member, 'consumer', '', 'fields', string.sub(body or '', 1, 65536))
  return type(written) ~= 'table' or not written.err
end

-- Puts one due member where it belongs: 'moved', 'broken' (buried), or 'stuck'.
local function place(member)
  local body = redis.call('HGET', KEYS[4], member)
  local stream, parts
  if body then stream, parts = unpacked(body) end
  if stream then
    redis.call('XADD', stream, '*', unpack(parts, 2, #parts))
    return 'moved'
  end
  return bury_broken(member, body) and 'broken' or 'stuck'
end

local count = {moved = 0, broken = 0, stuck = 0}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local became = place(member)
  count[became] = count[became] + 1
  if became == 'stuck' then
    -- The dead letters are no stream: keep it, out of the way of the others, and try again in a minute.
    redis.call('ZADD', KEYS[3], now + 60000, member)
  else
    redis.call('ZREM', KEYS[3], member)
    redis.call('HDEL', KEYS[4], member)
  end
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
return {count.moved, wait, pool, count.broken}
