#!lua flags=allow-oom
-- join: take a worker's name for a new process, and put what the name still holds into the pool.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the record of that name
-- KEYS[4]  hash     <ns>:crashes         crash log per entry
-- KEYS[5]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  consumer, the name to take
-- ARGV[3]  incarnation of the caller
-- ARGV[4]  ttl in ms after which a worker without a beat has lapsed
-- ARGV[5]  buried, the incarnation that the caller has proved dead, or ''
-- ARGV[6]  most, entries to move per stream and call
-- ARGV[7]  dead_maxlen, entries
-- ARGV[8]  asked, Redis' time in ms when the caller decided to judge
-- ARGV[9…] field names and values of the new record
-- Reply    {'ok', moved, trimmed}: the name is the caller's; or {'more', moved, trimmed}: call again;
--          or {'late'}: it comes a quarter of the ttl after it was asked for, ask again;
--          or {'live'}: a live process has the name. trimmed = list of {stream number, id}
-- Invariant: when the name is taken, nothing is pending under it (but what could not be buried: see _pool.lua).
-- Fence: the old record's beat by Redis' clock, and asked; or its incarnation proved dead.
-- Cost: O(most · log pending).
-- include: _fence.lua
-- include: _pool.lua
local group, consumer, most = ARGV[1], ARGV[2], tonumber(ARGV[6])
if is_late(ARGV[8], ARGV[4]) then return {'late'} end
local old = record_of(KEYS[3])
local now = now_ms()
local beats = math.abs(now - (tonumber(old[2]) or 0)) <= tonumber(ARGV[4])
if old[1] and beats and old[1] ~= ARGV[3] and old[1] ~= ARGV[5] then return {'live'} end

local crash = {KEYS[4], old[1] or 'unknown', now .. ' ' .. consumer .. ' ' .. (old[1] or 'unknown')}
if old[1] == ARGV[3] or old[3] == '1' then crash = nil end
local moved, trimmed = 0, {}
for number = 1, 2 do
  redis.call('XGROUP', 'CREATECONSUMER', KEYS[number], group, consumer)
  local count, gone, more = move_to_pool(KEYS[number], group, consumer, most, number, KEYS[5], ARGV[7], crash)
  moved = moved + count
  for _, id in ipairs(gone) do trimmed[#trimmed + 1] = {number, id} end
  if more then return {'more', moved, trimmed} end
end
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], 'incarnation', ARGV[3], 'beat', now, unpack(ARGV, 9, #ARGV))
redis.call('PEXPIRE', KEYS[3], 3600000)
return {'ok', moved, trimmed}
