#!lua flags=allow-oom
-- renew: reset the idle clock of held entries whose tenures still hold.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the caller's record
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name
-- ARGV[3]  incarnation of the caller
-- ARGV[4…] per delivery three values: stream number, id, deliveries
-- Reply    {'absent'} or {'taken'}: nothing was renewed; or
--          {'ok', answers}: one word per delivery: 'ok', 'lost' (the tenure has lapsed), or
--          'gone' (the tenure holds, but somebody deleted the body)
-- Invariant: delivery counts and owners do not change.
-- Fence: the record's incarnation, and per delivery consumer and count on the pending list.
-- Cost: O(deliveries · log pending).
-- include: _fence.lua
local group, consumer = ARGV[1], ARGV[2]
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end

local answers = {}
for i = 4, #ARGV, 3 do
  local stream, id = KEYS[tonumber(ARGV[i])], ARGV[i + 1]
  local answer = 'lost'
  if holds(stream, group, consumer, id, tonumber(ARGV[i + 2])) then
    if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then
      answer = 'gone'
    else
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
      answer = 'ok'
    end
  end
  answers[#answers + 1] = answer
end
return {'ok', answers}
