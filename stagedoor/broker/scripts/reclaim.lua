#!lua flags=allow-oom
-- reclaim: move what any consumer has left idle for too long to the pool, one page of the pending list.
--
-- KEYS[1]  stream   <ns> or <ns>:critical
-- KEYS[2]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  idle in ms
-- ARGV[3]  cursor, '0-0' to begin, else what the last reply said
-- ARGV[4]  most, entries of the list to look at per call
-- ARGV[5]  dead_maxlen, entries
-- ARGV[6]  stream number, for the dead letters
-- ARGV[7]  asked, Redis' time in ms when the caller decided to judge
-- Reply    {cursor, moved, trimmed}: cursor '0-0' when the list was walked to its end,
--          moved = how many entries, trimmed = ids whose bodies were gone: lost jobs, now dead letters.
--          The cursor as it was, and nothing, where the call comes a quarter of the idle time after it was asked for
-- Invariant: delivery counts do not change.
-- Fence: the idle time, within which live workers renew six times; and asked.
-- Cost: O(most · log pending).
-- include: _fence.lua
-- include: _pool.lua
-- Not XAUTOCLAIM: that drops an entry without a body at once, however busy its owner, who would lose a
-- retry that only it can still write.
local stream, group, cursor = KEYS[1], ARGV[1], ARGV[3]
if is_late(ARGV[7], ARGV[2]) then return {cursor, 0, {}} end
local start = cursor == '0-0' and '-' or '(' .. cursor
local page = redis.call('XPENDING', stream, group, start, '+', ARGV[4])
local idle, trimmed = {}, {}
for _, row in ipairs(page) do
  local id, consumer = row[1], row[2]
  local is_pooled, is_idle = consumer == '~pool', row[3] >= tonumber(ARGV[2])
  if (is_pooled or is_idle) and #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then
    if bury_trimmed(stream, group, ARGV[6], id, consumer, KEYS[2], ARGV[5]) then trimmed[#trimmed + 1] = id end
  elseif is_idle and not is_pooled then
    idle[#idle + 1] = id
  end
end
if #idle > 0 then
  idle[#idle + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, '~pool', 0, unpack(idle, 1, #idle))
  idle[#idle] = nil
end
return {#page == tonumber(ARGV[4]) and page[#page][1] or '0-0', #idle, trimmed}
