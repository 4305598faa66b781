-- Included by the scripts about flow calls. Needs _fence.lua.
-- A call's status hash: fields with a dot are the engine's, all others are steps, '<state> <epoch> <json>'.
-- Nothing here looks into a JSON text or a value: they are bytes.

-- The numbers under which the index of calls keeps their states: one whose keys are gone can still be counted off.
local STATES = {waiting = 1, running = 2, sleeping = 3, done = 4, failed = 5, aborted = 6, cancelled = 7, parked = 8}
local HAS_ENDED = {done = true, failed = true, aborted = true, cancelled = true}

-- Sets when to look at a call next, and counts it in its new state. Twelve digits and four places: exact in a double.
local function index(calls, states, call_id, old, new, look_at)
  redis.call('ZADD', calls, string.format('%.4f', look_at + STATES[new] / 16), call_id)
  if old == new then return end
  if old then redis.call('HINCRBY', states, old, -1) end
  redis.call('HINCRBY', states, new, 1)
end

-- The fields of a call's next entry.
local function continuation(status, call_id)
  local known = redis.call('HMGET', status, '.flow', '.request_id', '.trace')
  return {'kind', known[1] or '', 'call_id', call_id, 'request_id', known[2] or '', 'trace', known[3] or ''}
end

-- Adds an entry for a call and says so in its status; the caller sets state and index.
local function queue(stream, number, status, call_id)
  local entry = redis.call('XADD', stream, '*', unpack(continuation(status, call_id)))
  redis.call('HDEL', status, '.due')
  redis.call('HSET', status, '.queued', number .. ':' .. entry, '.for', 'a worker')
end

-- Whether the entry '<stream number>:<id>' is still in its stream, read or not.
local function is_there(jobs, critical, place)
  local number, entry = string.match(place or '', '^([12]):(.+)$')
  if not number then return false end
  return #redis.call('XRANGE', number == '1' and jobs or critical, entry, entry, 'COUNT', 1) == 1
end

-- Whether what a call waits for is still there: an entry, or one ('d:<member>') that a worker has delayed.
local function is_queued(jobs, critical, delayed, place)
  local member = string.match(place or '', '^d:(.+)$')
  if member then return redis.call('ZSCORE', delayed, member) and true or false end
  return is_there(jobs, critical, place)
end

-- The member of a call's timer among the delayed jobs.
local function timer_of(call_id) return 'flow:' .. call_id end

-- Sets the timer of a call: a delayed entry for the stream of this number.
local function set_timer(delayed, bodies, status, call_id, due, number)
  local parts = {#number .. ':' .. number .. ','}
  for _, part in ipairs(continuation(status, call_id)) do parts[#parts + 1] = #part .. ':' .. part .. ',' end
  redis.call('HSET', bodies, timer_of(call_id), table.concat(parts))
  redis.call('ZADD', delayed, due, timer_of(call_id))
end

local function drop_timer(delayed, bodies, call_id)
  redis.call('ZREM', delayed, timer_of(call_id))
  redis.call('HDEL', bodies, timer_of(call_id))
end

-- Whether the pass of this epoch may write about its call.
local function may_write(status, epoch)
  local known = redis.call('HMGET', status, '.state', '.epoch')
  return known[1] == 'running' and known[2] == epoch
end

-- Counts bytes that a call is about to keep more than before; returns whether it may.
local function take_bytes(status, more, most)
  local kept = tonumber(redis.call('HGET', status, '.bytes') or '0')
  if more > 0 and kept + more > most then return false end
  redis.call('HINCRBY', status, '.bytes', more)
  return true
end

-- Writes one step, and its value where there is one: nil when it is written, or was by a repeat of this call;
-- else why nothing was: 'lost' (it is something else than was seen), 'steps' or 'bytes' (the call may keep no more).
-- That the heartbeat of this very pass has marked it running in the meantime is no difference.
-- `freed` bytes are given back by the caller.
local function write_step(status, meta, epoch, limits, write, freed)
  local current = redis.call('HGET', status, write.key)
  if current == write.text and (not write.value or redis.call('HGET', meta, 'v:' .. write.key) == write.value) then
    return nil
  end
  local words = string.match(current or '', '^(%S+ %S+)') or ''
  if words ~= write.seen and words ~= 'running ' .. epoch then return 'lost' end
  local more = #write.text - #(current or '') - freed
  if write.value then more = more + #write.value - redis.call('HSTRLEN', meta, 'v:' .. write.key) end
  if not current and tonumber(redis.call('HGET', status, '.steps') or '0') >= limits.steps then return 'steps' end
  if not take_bytes(status, more, limits.bytes) then return 'bytes' end
  if not current then redis.call('HINCRBY', status, '.steps', 1) end
  if write.value then redis.call('HSET', meta, 'v:' .. write.key, write.value) end
  redis.call('HSET', status, write.key, write.text)
end
