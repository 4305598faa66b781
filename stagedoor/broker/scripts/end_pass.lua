#!lua flags=allow-oom
-- end_pass: end a pass: a last step, the call's next state, its timer or entry, lease and entry, all at once.
--
-- KEYS[1]  stream   <ns>                     entries of jobs
-- KEYS[2]  stream   <ns>:critical            continuations of started flows
-- KEYS[3]  hash     <ns>:crashes             crash log per entry
-- KEYS[4]  zset     <ns>:delayed             member → due time in ms
-- KEYS[5]  hash     <ns>:delayed:body        member → packed stream number and fields
-- KEYS[6]  zset     <ns>:calls               call → when to look at it next
-- KEYS[7]  hash     <ns>:calls:states        state → number of calls
-- KEYS[8]  hash     <ns>:call:<id>_status    the call and its steps
-- KEYS[9]  hash     <ns>:call:<id>_meta      its metadata, values and mailbox
-- KEYS[10] string   <ns>:call:<id>_lease     of the pass that runs
-- ARGV[1]  group
-- ARGV[2]  id of the call
-- ARGV[3]  epoch of the pass
-- ARGV[4]  wakes, how often the call had been woken when the pass last read it
-- ARGV[5]  '1' where the pass cannot go on: it is ended all the same, and an entry is added
-- ARGV[6]  look in ms, after which somebody should look at the call
-- ARGV[7]  keep in ms, how long an ended call is kept
-- ARGV[8]  most_steps that a call may have
-- ARGV[9]  most_bytes that a call may keep
-- ARGV[10] verb: 'sleep', 'wait', 'go', 'park', or the state in which the call ends
-- ARGV[11] due in ms, when a sleep or a wait is over; '' for never
-- ARGV[12] what it waits for, or why it is parked in one word
-- ARGV[13] misfit to be kept, '' for none
-- ARGV[14] error for people: why it is parked, or how it ended
-- ARGV[15] '1' where there is a result
-- ARGV[16] the result
-- ARGV[17] key of a step to be written first, '' for none
-- ARGV[18] seen: state and epoch of that step as the pass knows them
-- ARGV[19] text of that step
-- ARGV[20] '1' where it has a value; else that stays as it is
-- ARGV[21] its value
-- Reply    {'ended'}; {'again', now in ms, status, meta} (each hash as one value, see _whole.lua): the call was woken
--          in the meantime, the pass goes on, and the step was written; or the pass has not ended: {'lost'},
--          {'steps'}, {'bytes'}
-- Invariant: a call that is not running has what will run it: an entry, a timer, or somebody who has to wake it.
-- Fence: the call is running under this epoch; the step's first two words.
-- Cost: O(log calls + log delayed); O(fields of the call) where it goes on.
-- include: _fence.lua
-- include: _calls.lua
-- include: _whole.lua
local status, meta, call_id, epoch, verb = KEYS[8], KEYS[9], ARGV[2], ARGV[3], ARGV[10]
local most_bytes = tonumber(ARGV[9])
if not may_write(status, epoch) then
  local last = redis.call('HMGET', status, '.epoch', '.ended')
  return {last[1] == epoch and last[2] == epoch and 'ended' or 'lost'}
end
if ARGV[17] ~= '' then
  local write = {key = ARGV[17], seen = ARGV[18], text = ARGV[19], value = ARGV[20] == '1' and ARGV[21] or nil}
  local problem = write_step(status, meta, epoch, {steps = tonumber(ARGV[8]), bytes = most_bytes}, write, 0)
  if problem then return {problem} end
end

local now = now_ms()
local is_over = HAS_ENDED[verb] or verb == 'park'
if not is_over and (redis.call('HGET', status, '.wakes') or '0') ~= ARGV[4] then
  if ARGV[5] ~= '1' then
    return {'again', now, whole(status), whole(meta)}
  end
  verb = 'go'
end
local due = tonumber(ARGV[11])
if verb == 'sleep' and due <= now then verb = 'go' end

local known = redis.call('HMGET', status, '.entry', '.outcome')
local next_state, look_at = nil, now + tonumber(ARGV[6])
if HAS_ENDED[verb] then
  next_state, look_at = known[2] or verb, now + tonumber(ARGV[7])
  if not known[2] then
    local result = ARGV[15] == '1' and ARGV[16] or nil
    -- A call that is full must still be able to end: an error, which is short, always fits.
    if not take_bytes(status, #ARGV[14] + #(result or ''), result and most_bytes or math.huge) then return {'bytes'} end
    if result then redis.call('HSET', meta, 'result', result) end
    redis.call('HSET', status, '.outcome', verb, '.error', ARGV[14])
  end
  redis.call('HSET', status, '.finished', now)
elseif verb == 'park' then
  next_state = 'parked'
  redis.call('HSET', status, '.parked', ARGV[12], '.why', ARGV[14])
elseif verb == 'go' then
  next_state = 'waiting'
  queue(KEYS[2], '2', status, call_id)
else
  next_state = verb == 'sleep' and 'sleeping' or 'waiting'
  redis.call('HSET', status, '.for', ARGV[12])
  if due then
    look_at = due + tonumber(ARGV[6])
    redis.call('HSET', status, '.due', ARGV[11])
    set_timer(KEYS[4], KEYS[5], status, call_id, ARGV[11], '2')
  end
end
redis.call('HDEL', status, '.entry', '.misfit')
if ARGV[13] ~= '' then redis.call('HSET', status, '.misfit', ARGV[13]) end
redis.call('HSET', status, '.state', next_state, '.ended', epoch)
index(KEYS[6], KEYS[7], call_id, 'running', next_state, look_at)
redis.call('DEL', KEYS[10])

local number, entry = string.match(known[1] or '', '^([12]):(.+)$')
if number then
  redis.call('XACK', KEYS[tonumber(number)], ARGV[1], entry)
  redis.call('XDEL', KEYS[tonumber(number)], entry)
  redis.call('HDEL', KEYS[3], known[1])
end
if HAS_ENDED[next_state] then
  redis.call('PEXPIRE', status, ARGV[7])
  redis.call('PEXPIRE', meta, ARGV[7])
end
return {'ended'}
