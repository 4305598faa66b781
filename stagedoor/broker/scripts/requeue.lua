#!lua
-- requeue: put the jobs of dead letters back into their streams, each letter at most once; a parked call goes on.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  stream   <ns>:dead            dead letters
-- KEYS[4]  zset     <ns>:calls           call → when to look at it next
-- KEYS[5]  hash     <ns>:calls:states    state → number of calls
-- KEYS[6…] hash     <ns>:call:<id>_status    of the call of each letter that is about one, in turn
-- ARGV[1]  cap, the length of the stream of jobs at which a job is refused
-- ARGV[2]  look in ms, after which somebody should look at a call that goes on
-- ARGV[3…] per letter: its id, stream number, id of its call ('' for none), n, then n field names and values of the
--          new entry
-- Reply    one pair per letter: {'added', id of the new entry}; or the letter stays: {'full', ''}: the stream is at its
--          cap, {'unknown', ''}: its call is not there, {'ended', ''}: it has ended, {'open', ''}: it is not parked and
--          goes on by itself; or {'gone', ''}: there is no such letter any more
-- Invariant: a job is a letter or an entry, never both and never neither. A call is parked or has the entry.
-- Fence: the letter itself: whoever comes second finds none. Of a call: that it is parked.
-- Cost: O(letters · log calls). The caller has made the new fields out of the letter; a letter never changes.
-- include: _fence.lua
-- include: _calls.lua
local length, answers, i, call_at = redis.call('XLEN', KEYS[1]), {}, 3, 5

-- Returns why a call cannot go on through this letter, nil where it can.
local function refusal(status)
  local state = redis.pcall('HGET', status, '.state')
  if type(state) ~= 'string' then return 'unknown' end
  if HAS_ENDED[state] then return 'ended' end
  if state ~= 'parked' then return 'open' end
end

local function resume(status, call_id, place)
  redis.call('HDEL', status, '.parked', '.why', '.misfit')
  redis.call('HSET', status, '.state', 'waiting', '.queued', place, '.for', 'a worker')
  index(KEYS[4], KEYS[5], call_id, 'parked', 'waiting', now_ms() + tonumber(ARGV[2]))
end

while i <= #ARGV do
  local letter, number, call_id, n = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3])
  local status, why = nil, nil
  if call_id ~= '' then
    call_at = call_at + 1
    status = KEYS[call_at]
    why = refusal(status)
  end
  if #redis.call('XRANGE', KEYS[3], letter, letter, 'COUNT', 1) == 0 then
    answers[#answers + 1] = {'gone', ''}
  elseif why then
    answers[#answers + 1] = {why, ''}
  elseif number == 1 and length >= tonumber(ARGV[1]) then
    answers[#answers + 1] = {'full', ''}
  else
    local id = redis.call('XADD', KEYS[number], '*', unpack(ARGV, i + 4, i + 3 + n))
    redis.call('XDEL', KEYS[3], letter)
    if status then resume(status, call_id, number .. ':' .. id) end
    if number == 1 then length = length + 1 end
    answers[#answers + 1] = {'added', id}
  end
  i = i + 4 + n
end
return answers
