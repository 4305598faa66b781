#!lua
-- start_call: create a flow call and its first entry or timer, unless there is one of this id.
--
-- KEYS[1]  stream   <ns>                     entries of jobs
-- KEYS[2]  zset     <ns>:delayed             member → due time in ms
-- KEYS[3]  hash     <ns>:delayed:body        member → packed stream number and fields
-- KEYS[4]  zset     <ns>:calls               call → when to look at it next
-- KEYS[5]  hash     <ns>:calls:states        state → number of calls
-- KEYS[6]  hash     <ns>:call:<id>_status    the call
-- KEYS[7]  hash     <ns>:call:<id>_meta      its metadata
-- ARGV[1]  cap, the length of the stream of jobs at which a start is refused
-- ARGV[2]  most_bytes that a call may keep
-- ARGV[3]  look in ms from when it is due, after which somebody should look at it
-- ARGV[4]  id of the call
-- ARGV[5]  flow
-- ARGV[6]  delay in ms
-- ARGV[7]  request_id
-- ARGV[8]  trace
-- ARGV[9…] field names and values of the metadata, each name with its 'm:'
-- Reply    {'created', flow, state}; {'there', flow, state}: there is such a call, and nothing was changed;
--          {'full'} or {'bytes'}: nothing was written
-- Invariant: a call that is there has an entry, a timer or a lease, and a place in the index.
-- Fence: the call's own status hash.
-- Cost: O(metadata + log calls). At maxmemory it is refused: new work waits.
-- include: _fence.lua
-- include: _calls.lua
local status, call_id, delay = KEYS[6], ARGV[4], tonumber(ARGV[6])
local there = redis.call('HMGET', status, '.flow', '.state')
if there[2] then return {'there', there[1], there[2]} end
if delay == 0 and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return {'full'} end

local bytes = 0
for i = 9, #ARGV do bytes = bytes + #ARGV[i] end
if bytes > tonumber(ARGV[2]) then return {'bytes'} end

local now, state = now_ms(), delay > 0 and 'sleeping' or 'waiting'
redis.call('DEL', status, KEYS[7])
redis.call('HSET', status, '.flow', ARGV[5], '.state', state, '.created', now, '.starts', now + delay,
  '.request_id', ARGV[7], '.trace', ARGV[8], '.epoch', 0, '.bytes', bytes)
if #ARGV > 8 then redis.call('HSET', KEYS[7], unpack(ARGV, 9, #ARGV)) end
if delay > 0 then
  redis.call('HSET', status, '.due', now + delay, '.for', 'its start')
  set_timer(KEYS[2], KEYS[3], status, call_id, now + delay, '1')
else
  queue(KEYS[1], '1', status, call_id)
end
index(KEYS[4], KEYS[5], call_id, nil, state, now + delay + tonumber(ARGV[3]))
return {'created', ARGV[5], state}
