#!lua flags=allow-oom
-- sweep: move the entries of workers that have lapsed to the pool, and delete consumers long dead.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:crashes         crash log per entry
-- KEYS[4]  stream   <ns>:dead            dead letters
-- KEYS[5…] hash     <ns>:worker:<name>   records of the consumers named in ARGV[7…], in that order
-- ARGV[1]  group
-- ARGV[2]  ttl in ms after which a worker without a beat has lapsed
-- ARGV[3]  forget in ms after which a consumer without record and entries is deleted
-- ARGV[4]  most, entries to move per consumer, stream and call
-- ARGV[5]  dead_maxlen, entries
-- ARGV[6]  asked, Redis' time in ms when the caller decided to judge
-- ARGV[7…] names of consumers, as an earlier reply gave them
-- Reply    {names, swept, trimmed, more}: names = every consumer now, swept = list of {name, entries moved,
--          1 when it counts as a crash}, trimmed = list of {stream number, id}, more = 1: call again at once.
--          All of it is empty where the call comes a quarter of the ttl after it was asked for
-- Invariant: who has lapsed is decided by Redis' clock in the call that moves its entries.
-- Fence: the record's beat, and asked.
-- Cost: O(consumers + entries moved · log pending).
-- include: _fence.lua
-- include: _pool.lua
local group, ttl, forget, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if is_late(ARGV[6], ttl) then return {{}, {}, {}, 0} end
local now = now_ms()
local named = {}
for i = 7, #ARGV do named[ARGV[i]] = KEYS[i - 2] end

local names, seen, swept, trimmed, more = {}, {}, {}, {}, 0
for number = 1, 2 do
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[number], group)) do
    local name, pending, idle = info[2], info[4], info[6]
    if not seen[name] and name ~= '~pool' then
      seen[name] = true
      names[#names + 1] = name
    end
    if named[name] and name ~= '~pool' then
      local record = record_of(named[name])
      local lapsed = not record[1] or not (math.abs(now - (tonumber(record[2]) or 0)) <= ttl)
      if lapsed and pending > 0 then
        local who = record[1] or 'unknown'
        local crash = nil
        if record[3] ~= '1' then crash = {KEYS[3], who, now .. ' ' .. name .. ' ' .. who} end
        local count, gone, again = move_to_pool(KEYS[number], group, name, most, number, KEYS[4], ARGV[5], crash)
        swept[#swept + 1] = {name, count, crash and 1 or 0}
        for _, id in ipairs(gone) do trimmed[#trimmed + 1] = {number, id} end
        if again then more = 1 end
      elseif lapsed and not record[1] and idle > forget then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[number], group, name)
      end
    end
  end
end
return {names, swept, trimmed, more}
