#!lua flags=allow-oom
-- retire: a worker that stops cleanly gives back all that its name holds, then its record and consumers.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the caller's record
-- KEYS[4]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name
-- ARGV[3]  incarnation of the caller
-- ARGV[4]  most, entries to move per stream and call
-- ARGV[5]  dead_maxlen, entries
-- Reply    {'ok', moved}: nothing of this name is left; {'more', moved}: call again;
--          or {'absent'} or {'taken'}: nothing was done
-- Invariant: a consumer is deleted only when nothing is pending under it on its stream.
-- Fence: the record's incarnation.
-- Cost: O(most · log pending).
-- include: _fence.lua
-- include: _pool.lua
local group, consumer, most = ARGV[1], ARGV[2], tonumber(ARGV[4])
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end
local moved = 0
for number = 1, 2 do
  local count, _, more = move_to_pool(KEYS[number], group, consumer, most, number, KEYS[4], ARGV[5], nil)
  moved = moved + count
  if more then return {'more', moved} end
end
for number = 1, 2 do
  if #redis.call('XPENDING', KEYS[number], group, '-', '+', 1, consumer) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[number], group, consumer)
  end
end
redis.call('DEL', KEYS[3])
return {'ok', moved}
