#!lua flags=allow-oom
-- settle: write the outcomes of a batch of deliveries, each only while its tenure holds.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the caller's record; keeps the last batch and its answers
-- KEYS[4]  hash     <ns>:crashes         crash log per entry
-- KEYS[5]  stream   <ns>:dead            dead letters
-- KEYS[6]  zset     <ns>:delayed         member → due time in ms
-- KEYS[7]  hash     <ns>:delayed:body    member → packed stream number and fields
-- KEYS[8]  zset     <ns>:calls           call → when to look at it next
-- KEYS[9]  hash     <ns>:calls:states    state → number of calls
-- KEYS[10…] hash    <ns>:call:<id>_status    and then string <ns>:call:<id>_lease, of the call of each 'park' and
--          'again', in turn
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name
-- ARGV[3]  incarnation of the caller
-- ARGV[4]  batch, a number that grows by one with each new batch and stays when one is repeated
-- ARGV[5]  dead_maxlen, entries
-- ARGV[6]  a line per delivery: '<stream number> <id> <deliveries> <flag> <verb>'
-- ARGV[7…] the verbs' arguments, in the order of those lines, for the verbs that take one
--          flag 'g': the caller was told that the body is gone; 'c': there is a crash log to clear; '-': neither
--          verb 'done': no argument
--          verb 'delay': argument = '<after in ms> <packed body>'
--          verb 'again': argument = '<call id> <why> <after in ms> <packed body>': as delay, of a flow call's entry; where
--          the call has another entry already, this one is only acknowledged; why = 'unknown': the flow is not known
--          here, or 'retry'
--          verb 'dead': argument = packed names and values of the dead letter
--          verb 'park': argument = '<call id> <packed>': as dead, and the flow call is parked
-- Reply    {'absent'} or {'taken'}: nothing was written; or
--          {'ok', answers, soonest}: answers = one line per delivery: 'ok', 'lost' (the tenure has
--          lapsed, nothing written) or an error text; soonest = ms until the first delayed one, -1 for none
--          (few values, because each costs the caller more time to pack or to parse than it costs Redis)
-- Invariant: an entry leaves the pending list only after what replaces it is written.
-- Fence: the record's incarnation, and per delivery consumer and count on the pending list.
-- Cost: O(deliveries · log pending).
-- include: _fence.lua
-- include: _calls.lua
local group, consumer = ARGV[1], ARGV[2]
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end

local last = redis.call('HMGET', KEYS[3], 'batch', 'answers', 'soonest')
if last[1] == ARGV[4] then
  return {'ok', last[2], tonumber(last[3])}
end
-- A repeat that comes late, after its caller has gone on to the next batch: nobody reads this reply.
if last[1] and tonumber(last[1]) > tonumber(ARGV[4]) then
  return {'ok', string.gsub(ARGV[6], '[^\n]+', 'lost'), -1}
end
-- A missing group must show before anything is written: a batch fails as a whole or is answered as a whole.
local asked = {}
for line in string.gmatch(ARGV[6], '[^\n]+') do
  local number = tonumber(string.sub(line, 1, 1))
  if not asked[number] then redis.call('XPENDING', KEYS[number], group, '-', '+', 1) end
  asked[number] = true
end

local now, soonest = now_ms(), -1

-- A body that was gone while we held the entry can be held by nobody else: claiming drops such entries.
-- It may have been buried since (a reclaim cannot see that we live); the job goes on all the same.
local function is_orphan(stream, id)
  return #redis.call('XPENDING', stream, group, id, id, 1) == 0
    and #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0
end

local verbs = {}

function verbs.done() end

function verbs.delay(number, id, argument)
  local space = string.find(argument, ' ', 1, true)
  local after = tonumber(string.sub(argument, 1, space - 1))
  local member = number .. ':' .. id
  local written = redis.pcall('HSET', KEYS[7], member, string.sub(argument, space + 1))
  if type(written) == 'table' and written.err then return written.err end
  written = redis.pcall('ZADD', KEYS[6], now + after, member)
  if type(written) == 'table' and written.err then return written.err end
  if soonest < 0 or after < soonest then soonest = after end
end

-- Returns a problem, or nil and the names and values of the letter.
local function bury(argument)
  local parts, at = {}, 1
  while at <= #argument do
    local colon = string.find(argument, ':', at, true)
    local length = tonumber(string.sub(argument, at, colon - 1))
    parts[#parts + 1] = string.sub(argument, colon + 1, colon + length)
    at = colon + length + 2
  end
  local written = redis.pcall('XADD', KEYS[5], 'MAXLEN', '~', ARGV[5], '*', unpack(parts, 1, #parts))
  if type(written) == 'table' and written.err then return written.err end
  return nil, parts
end

function verbs.dead(_, _, argument) return (bury(argument)) end

-- Whether a call has another entry than this one: one that waits for a worker, or the one of the pass that runs.
local function has_another(known, place)
  if known[1] == 'running' then return known[3] ~= place and is_there(KEYS[1], KEYS[2], known[3]) end
  return known[2] ~= place and is_queued(KEYS[1], KEYS[2], KEYS[6], known[2])
end

local WAITS_FOR = {unknown = 'a worker that knows its flow', retry = 'a worker'}

-- Says in a call's status that it waits for an entry which was delayed under this member.
local function wait_delayed(status, lease, call_id, state, member, due, waits_for)
  redis.call('HDEL', status, '.due', '.entry')
  redis.call('HSET', status, '.state', 'waiting', '.queued', 'd:' .. member, '.for', waits_for)
  redis.call('DEL', lease)
  index(KEYS[8], KEYS[9], call_id, state, 'waiting', due)
end

-- Parks a call whose entry died, unless another pass of it runs, through another entry.
local function park(status, lease, call_id, place, letter)
  local state, held = redis.call('HGET', status, '.state'), redis.call('GET', lease)
  if not state or HAS_ENDED[state] or state == 'parked' then return end
  if held and string.match(held, '^%S+') ~= place then return end
  redis.call('HDEL', status, '.queued', '.due', '.for', '.entry')
  redis.call('HSET', status, '.state', 'parked', '.parked', letter.reason or '', '.why', letter.error or '')
  redis.call('DEL', lease)
  drop_timer(KEYS[6], KEYS[7], call_id)
  index(KEYS[8], KEYS[9], call_id, state, 'parked', now)
end

local call_at = 8
function verbs.again(number, id, argument)
  local call_id, reason, after = string.match(argument, '^(%S+) (%a+) (%d+)')
  local status, lease, place = KEYS[call_at], KEYS[call_at + 1], number .. ':' .. id
  local known = redis.pcall('HMGET', status, '.state', '.queued', '.entry')
  local is_open = known[1] and not HAS_ENDED[known[1]] and known[1] ~= 'parked'
  if is_open and has_another(known, place) then
    redis.call('HINCRBY', status, '.wakes', 1)
    return nil
  end
  local refusal = verbs.delay(number, id, string.sub(argument, #call_id + #reason + 3))
  if refusal then return refusal end
  local due = now + tonumber(after)
  if is_open then pcall(wait_delayed, status, lease, call_id, known[1], place, due, WAITS_FOR[reason]) end
end

function verbs.park(number, id, argument)
  local space = string.find(argument, ' ', 1, true)
  local refusal, parts = bury(string.sub(argument, space + 1))
  if refusal then return refusal end
  local letter = {}
  for i = 1, #parts, 2 do letter[parts[i]] = parts[i + 1] end
  -- What cannot be parked (a key of the wrong type) is no reason to bury it twice.
  pcall(park, KEYS[call_at], KEYS[call_at + 1], string.sub(argument, 1, space - 1), number .. ':' .. id, letter)
end

local answers, argument = {}, 6
for line in string.gmatch(ARGV[6], '[^\n]+') do
  local number, id, deliveries, flag, verb = string.match(line, '^(%d) (%S+) (%d+) (%S) (%a+)$')
  if verb ~= 'done' then argument = argument + 1 end
  if verb == 'park' or verb == 'again' then call_at = call_at + 2 end
  local stream = KEYS[tonumber(number)]
  local answer = 'lost'
  if holds(stream, group, consumer, id, tonumber(deliveries)) or (flag == 'g' and is_orphan(stream, id)) then
    local problem = verbs[verb](number, id, ARGV[argument])
    if problem then
      answer = string.gsub(problem, '%s+', ' ')
    else
      redis.call('XACK', stream, group, id)
      redis.call('XDEL', stream, id)
      if flag ~= '-' then redis.pcall('HDEL', KEYS[4], number .. ':' .. id) end
      answer = 'ok'
    end
  end
  answers[#answers + 1] = answer
end
local lines = table.concat(answers, '\n')
redis.call('HSET', KEYS[3], 'batch', ARGV[4], 'answers', lines, 'soonest', soonest)
return {'ok', lines, soonest}
