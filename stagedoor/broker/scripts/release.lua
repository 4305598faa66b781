#!lua flags=allow-oom
-- release: give unfinished entries back to the pool, claimable at once.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the caller's record
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name, or the one that it had when it was handed these
-- ARGV[3]  incarnation of the caller
-- ARGV[4…] per delivery: stream number, id, deliveries, n, then n field names and values with which a
--          body that is gone is added anew (n = 0: nothing to send, or too large; such an entry stays pending)
-- Reply    {'absent'} or {'taken'}: nothing was released; or
--          {'ok', answers}: one word per delivery: 'ok', or 'lost' (the tenure has lapsed)
-- Invariant: every entry released is in the pool, or, where its body was gone, in the stream anew.
-- Fence: the record's incarnation, and per delivery consumer and count on the pending list.
-- Cost: O(deliveries · log pending). Not a crash and not an attempt: the count stays.
-- include: _fence.lua
local group, consumer = ARGV[1], ARGV[2]
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end

local answers, i = {}, 4
while i <= #ARGV do
  local stream, id, n = KEYS[tonumber(ARGV[i])], ARGV[i + 1], tonumber(ARGV[i + 3])
  local answer = 'lost'
  if holds(stream, group, consumer, id, tonumber(ARGV[i + 2])) then
    if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 1 then
      redis.call('XCLAIM', stream, group, '~pool', 0, id, 'JUSTID')
      answer = 'ok'
    elseif n > 0 then
      redis.call('XADD', stream, '*', unpack(ARGV, i + 4, i + 3 + n))
      redis.call('XACK', stream, group, id)
      answer = 'ok'
    end
  end
  answers[#answers + 1] = answer
  i = i + 4 + n
end
return {'ok', answers}
