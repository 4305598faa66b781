#!lua flags=allow-oom
-- keep: renew the leases of the passes that a process runs, and mark their steps that take long.
--
-- KEYS[1…] hash     <ns>:call:<id>_status    and then string <ns>:call:<id>_lease, of each pass in turn
-- ARGV[1]  lease in ms
-- ARGV[2]  most_steps that a call may have
-- ARGV[3]  most_bytes that a call may keep
-- ARGV[4…] per pass: epoch, n, then n times the key of a step, seen (its state and epoch as the pass knows them),
--          and its text from now on
-- Reply    a word per pass: 'ok'; 'cancel': as 'ok', and a cancel was asked for; or 'lost', and nothing was written:
--          it holds no longer, or its keys are no call's any more
-- Invariant: a step that was recorded in the meantime is left as it is.
-- Fence: per pass, the call is running under this epoch; per step, its first two words.
-- Cost: O(passes + steps).
-- include: _fence.lua
-- include: _calls.lua
local limits = {steps = tonumber(ARGV[2]), bytes = tonumber(ARGV[3])}
local now, answers, i = now_ms(), {}, 4

local function keep(status, lease, epoch, first, last)
  if not may_write(status, epoch) then return 'lost' end
  local known = redis.call('HMGET', status, '.entry', '.cancel')
  redis.call('SET', lease, (known[1] or '') .. ' ' .. epoch, 'PX', ARGV[1])
  redis.call('HSET', status, '.beat', now)
  for at = first, last, 3 do
    write_step(status, '', epoch, limits, {key = ARGV[at], seen = ARGV[at + 1], text = ARGV[at + 2]}, 0)
  end
  return known[2] and 'cancel' or 'ok'
end

for pass = 1, #KEYS, 2 do
  local n = tonumber(ARGV[i + 1])
  -- One call whose keys somebody has spoilt must not take the leases of all others with it.
  local is_sound, answer = pcall(keep, KEYS[pass], KEYS[pass + 1], ARGV[i], i + 2, i + 1 + 3 * n)
  answers[#answers + 1] = is_sound and answer or 'lost'
  i = i + 2 + 3 * n
end
return answers
