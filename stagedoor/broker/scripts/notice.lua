#!lua flags=allow-oom
-- notice: write one dead letter about entries that somebody deleted before anybody had read them.
--
-- KEYS[1]  hash     <ns>:trimmed         stream number → what of its losses has been noted
-- KEYS[2]  stream   <ns>:dead            dead letters
-- ARGV[1]  stream number
-- ARGV[2]  known, what the caller found noted; '' for nothing
-- ARGV[3]  noted, what is to be noted now
-- ARGV[4]  lost, entries that this letter is about; 0 writes no letter
-- ARGV[5]  dead_maxlen, entries
-- Reply    1 when it was noted now, 0 when somebody else has noted something since
-- Invariant: each loss has one letter, however many look.
-- Fence: known must still be what is noted.
-- Cost: O(1).
local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[2] then return 0 end
if tonumber(ARGV[4]) > 0 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'reason', 'trimmed',
    'error', ARGV[4] .. ' or more entries were deleted from the stream before anybody had read them',
    'stream', ARGV[1], 'entry_id', '', 'consumer', '', 'count', ARGV[4], 'fields', '')
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
