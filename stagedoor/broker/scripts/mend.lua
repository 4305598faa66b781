#!lua flags=allow-oom
-- mend: make delayed members due now that would never come due by themselves.
--
-- KEYS[1]  zset     <ns>:delayed         member → due time in ms
-- KEYS[2]  hash     <ns>:delayed:body    member → packed stream number and fields
-- ARGV[1]  latest, the due time in ms past which a score is no due time of ours
-- ARGV[2…] members
-- Reply    how many are due now that were not
-- Invariant: nothing is deleted: promote places what has a good body, and buries what has none.
-- Fence: each member is looked at again here; one that is in order by now is left alone.
-- Cost: O(members · log delayed).
-- include: _fence.lua
local now, mended = now_ms(), 0
for i = 2, #ARGV do
  local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '')
  local body = redis.call('HGET', KEYS[2], ARGV[i])
  local is_homeless, is_bodiless = not score and body, score and score > now and not body
  if is_homeless or is_bodiless or (score and score > tonumber(ARGV[1])) then
    redis.call('ZADD', KEYS[1], now, ARGV[i])
    mended = mended + 1
  end
end
return mended
