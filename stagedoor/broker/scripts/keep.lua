#!lua flags=allow-oom
-- keep: renew the leases of the passes that a process runs, and mark their steps that take long.
--
-- KEYS[1…] hash     <ns>:call:<id>_status    and then string <ns>:call:<id>_lease, of each pass in turn
-- ARGV[1]  lease in ms
-- ARGV[2]  most_steps that a call may have
-- ARGV[3]  most_bytes that a call may keep
-- ARGV[4…] per pass: epoch, n, then n times the key of a step, seen (its state and epoch as the pass knows them),
--          and its text from now on
-- Reply    a word per pass: 'ok'; 'cancel': as 'ok', and a cancel was asked for; or 'lost', and nothing was written
-- Invariant: a step that was recorded in the meantime is left as it is.
-- Fence: per pass, the call is running under this epoch; per step, its first two words.
-- Cost: O(passes + steps).
-- include: _fence.lua
-- include: _calls.lua
local limits = {steps = tonumber(ARGV[2]), bytes = tonumber(ARGV[3])}
local now, answers, i = now_ms(), {}, 4
for pass = 1, #KEYS, 2 do
  local status, lease, epoch, n = KEYS[pass], KEYS[pass + 1], ARGV[i], tonumber(ARGV[i + 1])
  local answer = 'lost'
  if may_write(status, epoch) then
    local known = redis.call('HMGET', status, '.entry', '.cancel')
    redis.call('SET', lease, (known[1] or '') .. ' ' .. epoch, 'PX', ARGV[1])
    redis.call('HSET', status, '.beat', now)
    for at = i + 2, i + 1 + 3 * n, 3 do
      write_step(status, '', epoch, limits, {key = ARGV[at], seen = ARGV[at + 1], text = ARGV[at + 2]}, 0)
    end
    answer = known[2] and 'cancel' or 'ok'
  end
  answers[#answers + 1] = answer
  i = i + 2 + 3 * n
end
return answers
