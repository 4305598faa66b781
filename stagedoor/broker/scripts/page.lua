#!lua flags=allow-oom
-- page: read one page of a stream as it is, with field names that are there twice.
--
-- KEYS[1]  stream   <ns>, <ns>:critical or <ns>:dead
-- ARGV[1]  'up' for the oldest first, 'down' for the newest first
-- ARGV[2]  start, an entry id, '(' and one for what comes after it, '-' or '+'
-- ARGV[3]  end, likewise
-- ARGV[4]  most, entries
-- Reply    list of {id, flat field names and values}
-- Invariant: nothing changes.
-- Fence: none is needed.
-- Cost: O(most).
-- A script, because the command's reply goes through a dictionary in redis-py.
if ARGV[1] == 'up' then return redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4]) end
return redis.call('XREVRANGE', KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
