#!lua flags=allow-oom
-- look: look after calls that are due for it: make lost timers and entries anew, and forget those that have expired.
--
-- KEYS[1]  stream   <ns>                     entries of jobs
-- KEYS[2]  stream   <ns>:critical            continuations of started flows
-- KEYS[3]  zset     <ns>:delayed             member → due time in ms
-- KEYS[4]  hash     <ns>:delayed:body        member → packed stream number and fields
-- KEYS[5]  zset     <ns>:calls               call → when to look at it next
-- KEYS[6]  hash     <ns>:calls:states        state → number of calls
-- KEYS[7…] hash     <ns>:call:<id>_status    and then string <ns>:call:<id>_lease, of each call in turn
-- ARGV[1]  look in ms, after which somebody should look again
-- ARGV[2]  idle in ms, as look, for calls that only somebody else can wake
-- ARGV[3]  keep in ms, how long an ended call is kept
-- ARGV[4…] ids of the calls
-- Reply    {looked, woken, timers, forgotten}: how many were due, got an entry, got a timer, have expired
-- Invariant: a call that is not running has what will run it, and one that runs has an entry; else it gets one.
--        One whose keys are no call's (of another type, or in no state that there is) is let alone for an idle look,
--        and keeps nobody from the others.
-- Fence: each call's time in the index is looked at again here; whoever comes second finds a later one.
-- Cost: O(calls · log calls).
-- include: _fence.lua
-- include: _calls.lua
local now, look, count = now_ms(), tonumber(ARGV[1]), {looked = 0, woken = 0, timers = 0, forgotten = 0}

local function forget(call_id, score)
  local number = math.floor((score - math.floor(score)) * 16 + 0.5)
  for state, own in pairs(STATES) do
    if own == number then redis.call('HINCRBY', KEYS[6], state, -1) end
  end
  drop_timer(KEYS[3], KEYS[4], call_id)
  redis.call('ZREM', KEYS[5], call_id)
  count.forgotten = count.forgotten + 1
end

-- Returns the ms at which to look next, or nil: nothing will run this call.
local function next_look(call_id, status, lease, known)
  local state, queued, entry, due = known[1], known[2], known[3], tonumber(known[4])
  if state == 'running' then
    if redis.call('GET', lease) or is_there(KEYS[1], KEYS[2], entry) then return now + look end
    return nil
  end
  if queued then
    if is_queued(KEYS[1], KEYS[2], KEYS[3], queued) then return now + look end
    -- One that was delayed is promoted under another id; who delays it again says so. So it is missed twice first.
    if string.sub(queued, 1, 2) ~= 'd:' or redis.call('HGET', status, '.missed') == queued then return nil end
    redis.call('HSET', status, '.missed', queued)
    return now + look
  end
  if not due then return now + tonumber(ARGV[2]) end
  if redis.call('ZSCORE', KEYS[3], timer_of(call_id)) then return math.max(now, due) + look end
  if due <= now then return nil end
  set_timer(KEYS[3], KEYS[4], status, call_id, known[4], '2')
  count.timers = count.timers + 1
  return due + look
end

-- Looks after one call that is due for it.
local function look_after(call_id, status, lease, score)
  local known = redis.call('HMGET', status, '.state', '.queued', '.entry', '.due')
  local state = known[1]
  if not state then
    forget(call_id, score)
  elseif HAS_ENDED[state] then
    local left = redis.call('PTTL', status)
    if left < 0 then
      left = tonumber(ARGV[3])
      redis.call('PEXPIRE', status, left)
    end
    index(KEYS[5], KEYS[6], call_id, state, state, now + left)
  else
    local again = next_look(call_id, status, lease, known)
    if not again then
      queue(KEYS[2], '2', status, call_id)
      redis.call('HDEL', status, '.entry')
      redis.call('HSET', status, '.state', 'waiting')
      count.woken = count.woken + 1
      index(KEYS[5], KEYS[6], call_id, state, 'waiting', now + look)
    else
      index(KEYS[5], KEYS[6], call_id, state, state, again)
    end
  end
end

for i = 4, #ARGV do
  local call_id, at = ARGV[i], 2 * i - 1
  local score = tonumber(redis.call('ZSCORE', KEYS[5], call_id) or '')
  if score and score <= now + 1 then
    count.looked = count.looked + 1
    if not pcall(look_after, call_id, KEYS[at], KEYS[at + 1], score) then
      local later = now + tonumber(ARGV[2]) + score - math.floor(score)
      redis.call('ZADD', KEYS[5], string.format('%.4f', later), call_id)
    end
  end
end
return {count.looked, count.woken, count.timers, count.forgotten}
