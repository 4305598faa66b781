#!lua flags=allow-oom
-- decide: write how a call ends, before its callback runs.
--
-- KEYS[1]  hash     <ns>:call:<id>_status    the call
-- KEYS[2]  hash     <ns>:call:<id>_meta      its result
-- ARGV[1]  epoch of the pass
-- ARGV[2]  most_bytes that a call may keep
-- ARGV[3]  outcome: the state in which it will end
-- ARGV[4]  error, a text for people
-- ARGV[5]  '1' where there is a result
-- ARGV[6]  the result
-- Reply    'ok'; or nothing was written: 'lost' (the pass holds no longer, or something else is decided), 'bytes'
-- Invariant: a call's outcome is decided once.
-- Fence: the call is running under this epoch, and has no other outcome.
-- Cost: O(1).
-- include: _fence.lua
-- include: _calls.lua
if not may_write(KEYS[1], ARGV[1]) then return 'lost' end
local decided = redis.call('HGET', KEYS[1], '.outcome')
if decided then return decided == ARGV[3] and 'ok' or 'lost' end
local result = ARGV[5] == '1' and ARGV[6] or nil
-- A call that is full must still be able to end: an error, which is short, always fits.
local most_bytes = result and tonumber(ARGV[2]) or math.huge
if not take_bytes(KEYS[1], #ARGV[4] + #(result or ''), most_bytes) then return 'bytes' end
if result then redis.call('HSET', KEYS[2], 'result', result) end
redis.call('HSET', KEYS[1], '.outcome', ARGV[3], '.error', ARGV[4])
return 'ok'
