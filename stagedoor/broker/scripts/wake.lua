#!lua flags=allow-oom
-- wake: tell a call something (a signal, a cancel, a resume, or nothing more), and make sure that a pass sees it.
--
-- KEYS[1]  stream   <ns>                     entries of jobs
-- KEYS[2]  stream   <ns>:critical            continuations of started flows
-- KEYS[3]  zset     <ns>:calls               call → when to look at it next
-- KEYS[4]  hash     <ns>:calls:states        state → number of calls
-- KEYS[5]  hash     <ns>:call:<id>_status    the call
-- KEYS[6]  hash     <ns>:call:<id>_meta      its mailbox
-- KEYS[7]  zset     <ns>:delayed             member → due time in ms
-- ARGV[1]  look in ms, after which somebody should look at it
-- ARGV[2]  id of the call
-- ARGV[3]  verb: 'signal', 'cancel', 'resume' or 'wake'
-- ARGV[4]  signal: its name
-- ARGV[5]  signal: its value
-- ARGV[6]  signal: the token of this sending
-- ARGV[7]  signal: most_signals that a call may be sent
-- ARGV[8]  signal: most_bytes that a call may keep
-- Reply    'told'; or nothing was changed: 'unknown' (there is no such call), 'ended' (its outcome is decided),
--          'full' (it may be sent or keep no more), 'not parked' (of a resume)
-- Invariant: what is told to a call is seen by a pass that begins afterwards, or by one that finds the count grown.
-- Fence: none is needed: whoever wakes changes nothing that a pass has written. A token is taken once.
-- Cost: O(log calls).
-- include: _fence.lua
-- include: _calls.lua
local status, call_id, verb = KEYS[5], ARGV[2], ARGV[3]
local known = redis.call('HMGET', status, '.state', '.outcome', '.queued')
local state, now = known[1], now_ms()
if not state then return 'unknown' end
if HAS_ENDED[state] then return 'ended' end
if known[2] and (verb == 'signal' or verb == 'cancel') then return 'ended' end

-- Returns whether there was room.
local function deliver(name, value)
  if redis.call('HEXISTS', status, '.t:' .. ARGV[6]) == 1 then return true end
  if tonumber(redis.call('HGET', status, '.signals') or '0') >= tonumber(ARGV[7]) then return false end
  if not take_bytes(status, #name + #value, tonumber(ARGV[8])) then return false end
  local number = redis.call('HINCRBY', status, '.in:' .. name, 1)
  redis.call('HINCRBY', status, '.signals', 1)
  redis.call('HSET', KEYS[6], 's:' .. name .. ':' .. number, value)
  redis.call('HSET', status, '.t:' .. ARGV[6], 1)
  return true
end

if verb == 'signal' and not deliver(ARGV[4], ARGV[5]) then return 'full' end
if verb == 'cancel' then redis.call('HSETNX', status, '.cancel', now) end
if verb == 'resume' and state ~= 'parked' then return 'not parked' end

if state == 'running' then
  redis.call('HINCRBY', status, '.wakes', 1)
elseif state == 'parked' and (verb == 'signal' or verb == 'wake') then
  return 'told'
elseif not is_queued(KEYS[1], KEYS[2], KEYS[7], known[3]) then
  redis.call('HDEL', status, '.parked', '.why')
  if verb == 'resume' then redis.call('HDEL', status, '.misfit') end
  queue(KEYS[2], '2', status, call_id)
  redis.call('HSET', status, '.state', 'waiting')
  index(KEYS[3], KEYS[4], call_id, state, 'waiting', now + tonumber(ARGV[1]))
end
return 'told'
