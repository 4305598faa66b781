#!lua flags=allow-oom
-- beat: say that this process lives, and how it is.
--
-- KEYS[1]  hash     <ns>:worker:<name>   the caller's record
-- ARGV[1]  incarnation of the caller
-- ARGV[2…] field names and values of the record, all of them: one that was flushed, or is no record, is made anew
-- Reply    'ok', or 'taken': another process has the name, this one owns nothing any more
-- Invariant: a record belongs to one incarnation until it lapses.
-- Fence: the record's incarnation.
-- Cost: O(1).
-- include: _fence.lua
local why = refused(KEYS[1], ARGV[1])
if why == 'taken' then return why end
if why then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'beat', now_ms(), unpack(ARGV, 2, #ARGV))
redis.call('PEXPIRE', KEYS[1], 3600000)
return 'ok'
