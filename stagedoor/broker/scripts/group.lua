#!lua flags=allow-oom
-- group: create the consumer group of a stream where it is missing, at the stream's beginning.
--
-- KEYS[1]  stream   <ns> or <ns>:critical
-- ARGV[1]  group
-- Reply    1 when it was created, 0 when it was there
-- Invariant: whatever is in a stream is owed, so no group ever begins past an entry.
-- Fence: none is needed: creating it twice changes nothing.
-- Cost: O(1). A script only for its flag: at maxmemory the command itself is refused, also where the group is
--       there, and a worker that cannot start cannot make room.
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if not made.err then return 1 end
if string.find(made.err, 'BUSYGROUP', 1, true) then return 0 end
return made
