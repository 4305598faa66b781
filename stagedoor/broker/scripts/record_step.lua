#!lua flags=allow-oom
-- record_step: write one step and its value, if the pass still holds and the step is what it has seen.
--
-- KEYS[1]  hash     <ns>:call:<id>_status    the call and its steps
-- KEYS[2]  hash     <ns>:call:<id>_meta      its values
-- ARGV[1]  epoch of the pass
-- ARGV[2]  most_steps that a call may have
-- ARGV[3]  most_bytes that a call may keep
-- ARGV[4]  key of the step
-- ARGV[5]  seen: state and epoch as the pass knows them, '' for a step that is not there
-- ARGV[6]  text of the step from now on
-- ARGV[7]  '1' where there is a value; else it stays as it is
-- ARGV[8]  the value
-- Reply    'ok'; 'cancel': as 'ok', and a cancel was asked for; or nothing was written: 'lost' (another pass has begun,
--          this one has ended, or the step is something else by now), 'steps' or 'bytes' (the call may keep no more)
-- Invariant: state and value are written together or not at all. The caller sees to it that no step which is seen
--          to be over is written again.
-- Fence: the call is running under this epoch, and the step's first two words.
-- Cost: O(1).
-- include: _fence.lua
-- include: _calls.lua
if not may_write(KEYS[1], ARGV[1]) then return 'lost' end
local limits = {steps = tonumber(ARGV[2]), bytes = tonumber(ARGV[3])}
local write = {key = ARGV[4], seen = ARGV[5], text = ARGV[6], value = ARGV[7] == '1' and ARGV[8] or nil}
local problem = write_step(KEYS[1], KEYS[2], ARGV[1], limits, write, 0)
if problem then return problem end
return redis.call('HEXISTS', KEYS[1], '.cancel') == 1 and 'cancel' or 'ok'
