#!lua flags=allow-oom
-- begin_pass: begin a pass of a call through an entry that is held, and read all that is remembered.
--
-- KEYS[1]  stream   <ns>                     entries of jobs
-- KEYS[2]  stream   <ns>:critical            continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>       the caller's record
-- KEYS[4]  hash     <ns>:crashes             crash log per entry
-- KEYS[5]  zset     <ns>:delayed             member → due time in ms
-- KEYS[6]  hash     <ns>:delayed:body        member → packed stream number and fields
-- KEYS[7]  zset     <ns>:calls               call → when to look at it next
-- KEYS[8]  hash     <ns>:calls:states        state → number of calls
-- KEYS[9]  hash     <ns>:call:<id>_status    the call and its steps
-- KEYS[10] hash     <ns>:call:<id>_meta      its metadata, values and mailbox
-- KEYS[11] string   <ns>:call:<id>_lease     '<stream number>:<entry id> <epoch>' of the pass that runs
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name
-- ARGV[3]  incarnation of the caller
-- ARGV[4]  stream number of the entry
-- ARGV[5]  id of the entry
-- ARGV[6]  deliveries of the entry, as the caller got it
-- ARGV[7]  id of the call
-- ARGV[8]  lease in ms
-- ARGV[9]  look in ms, after which somebody should look at the call
-- Reply    {'absent'} or {'taken'} or {'lost'} (the tenure has lapsed): nothing was written; or
--          {'begun', epoch, now in ms, status, meta}: each hash as one value, see _whole.lua; or no pass begins and
--          the entry is acknowledged and deleted: {'busy'} (another pass runs, and looks again before it suspends),
--          {'ended'}, {'parked'}, {'unknown'}
-- Invariant: a pass that runs has an entry of its own, pending or in the pool; epochs only grow.
-- Fence: the record's incarnation, consumer and count on the pending list, and the lease: it is free; or was taken
--        through this same entry, whose earlier tenure has then lapsed; or through one that is gone by now, for
--        whoever runs a pass holds its entry.
-- Cost: O(fields of the call), which are bounded by what a call may keep.
-- include: _fence.lua
-- include: _calls.lua
-- include: _whole.lua
local status, meta, lease = KEYS[9], KEYS[10], KEYS[11]
local stream, entry, call_id = KEYS[tonumber(ARGV[4])], ARGV[5], ARGV[7]
local place = ARGV[4] .. ':' .. entry
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end
if not holds(stream, ARGV[1], ARGV[2], entry, tonumber(ARGV[6])) then return {'lost'} end

local function turned_away(word)
  redis.call('XACK', stream, ARGV[1], entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', KEYS[4], place)
  return {word}
end

local known = redis.call('HMGET', status, '.state', '.epoch')
local state = known[1]
if not state then return turned_away('unknown') end
if HAS_ENDED[state] then return turned_away('ended') end
if state == 'parked' then return turned_away('parked') end
local held = string.match(redis.call('GET', lease) or '', '^%S+')
if held and held ~= place and is_there(KEYS[1], KEYS[2], held) then
  redis.call('HINCRBY', status, '.wakes', 1)
  return turned_away('busy')
end

local now, epoch = now_ms(), string.format('%d', tonumber(known[2] or '0') + 1)
redis.call('SET', lease, place .. ' ' .. epoch, 'PX', ARGV[8])
redis.call('HSET', status, '.state', 'running', '.epoch', epoch, '.entry', place, '.beat', now)
redis.call('HDEL', status, '.queued', '.due', '.for')
drop_timer(KEYS[5], KEYS[6], call_id)
index(KEYS[7], KEYS[8], call_id, state, 'running', now + tonumber(ARGV[9]))
return {'begun', epoch, now, whole(status), whole(meta)}
