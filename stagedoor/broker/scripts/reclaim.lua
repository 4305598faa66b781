#!lua flags=allow-oom
-- reclaim: move what any consumer has left idle for too long to the pool, one page of the pending list.
--
-- KEYS[1]  stream   <ns> or <ns>:critical
-- KEYS[2]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  idle in ms
-- ARGV[3]  cursor, '0-0' to begin, else what the last reply said
-- ARGV[4]  most, entries per call
-- ARGV[5]  dead_maxlen, entries
-- ARGV[6]  stream number, for the dead letters
-- Reply    {cursor, moved, trimmed}: cursor '0-0' when the list was walked to its end,
--          moved = how many entries, trimmed = ids whose bodies were gone: lost jobs, now dead letters
-- Invariant: delivery counts do not change.
-- Fence: none is needed: live workers renew six times within the idle time.
-- Cost: O(most · log pending).
-- include: _pool.lua
local reply = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], '~pool', ARGV[2], ARGV[3], 'COUNT', ARGV[4], 'JUSTID')
for _, id in ipairs(reply[3]) do bury_trimmed(KEYS[2], ARGV[5], ARGV[6], id, '') end
return {reply[1], #reply[2], reply[3]}
