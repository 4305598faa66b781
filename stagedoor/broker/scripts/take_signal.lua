#!lua flags=allow-oom
-- take_signal: take the oldest signal of a name out of the mailbox, or time out, or wait: one of them, for good.
--
-- KEYS[1]  hash     <ns>:call:<id>_status    the call and its steps
-- KEYS[2]  hash     <ns>:call:<id>_meta      its values and mailbox
-- ARGV[1]  epoch of the pass
-- ARGV[2]  most_steps that a call may have
-- ARGV[3]  most_bytes that a call may keep
-- ARGV[4]  name of the signal
-- ARGV[5]  due, the ms at which the time is over; '' for never
-- ARGV[6]  key of the step
-- ARGV[7]  seen: state and epoch as the pass knows them, '' for a step that is not there
-- ARGV[8]  text of the step when a signal was taken
-- ARGV[9]  text of the step when the time is over
-- ARGV[10] text of the step when it waits
-- Reply    {'taken', value}, {'over'} or {'waits'}: that was written; or nothing was: {'lost'}, {'steps'}, {'bytes'}
-- Invariant: a signal is in the mailbox or is one step's value, never both; a signal wins over a time that is over.
-- Fence: the call is running under this epoch, and the step's first two words.
-- Cost: O(1).
-- include: _fence.lua
-- include: _calls.lua
local status, meta, name, key = KEYS[1], KEYS[2], ARGV[4], ARGV[6]
if not may_write(status, ARGV[1]) then return {'lost'} end
local limits = {steps = tonumber(ARGV[2]), bytes = tonumber(ARGV[3])}

-- A repeat of a call whose reply was lost: what it decided stands.
local current = redis.call('HGET', status, key)
if current == ARGV[8] then return {'taken', redis.call('HGET', meta, 'v:' .. key)} end
if current and current == ARGV[9] then return {'over'} end

local function decide(text, word, value, freed)
  local write = {key = key, seen = ARGV[7], text = text, value = value}
  return {write_step(status, meta, ARGV[1], limits, write, freed) or word, value}
end

local number = tonumber(redis.call('HGET', status, '.out:' .. name) or '0') + 1
local letter = 's:' .. name .. ':' .. string.format('%d', number)
local value = redis.call('HGET', meta, letter)
if value then
  local reply = decide(ARGV[8], 'taken', value, #name + #value)
  if reply[1] == 'taken' then
    redis.call('HDEL', meta, letter)
    redis.call('HSET', status, '.out:' .. name, number)
  end
  return reply
end
if ARGV[5] ~= '' and now_ms() >= tonumber(ARGV[5]) then return decide(ARGV[9], 'over', nil, 0) end
return decide(ARGV[10], 'waits', nil, 0)
