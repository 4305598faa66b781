#!lua flags=allow-oom
-- read: hand out up to `limit` entries without blocking: the pool's first, then critical, then jobs.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  hash     <ns>:worker:<name>   the caller's record
-- KEYS[4]  hash     <ns>:crashes         crash log per entry
-- KEYS[5]  stream   <ns>:dead            dead letters
-- ARGV[1]  group
-- ARGV[2]  consumer, the caller's name
-- ARGV[3]  incarnation of the caller
-- ARGV[4]  limit, entries in all, at least 1
-- ARGV[5]  for_jobs, how many of them critical may not take while jobs has work
-- ARGV[6]  dead_maxlen, entries
-- ARGV[7…] entries that are left in the pool: '<stream number>:<id>'
-- Reply    {'absent'} or {'taken'}: nothing was read; or
--          {'ok', entries, trimmed}: entries = one value each: a line of numbers (stream number, deliveries,
--          then the lengths of what follows), then without separators: id, crash log, names and values;
--          trimmed = list of {stream number, id} that were in the pool without a body
--          (one value per entry, because each value costs the caller more time to parse than an entry costs Redis)
-- Invariant: each entry returned is pending under the caller with the count returned.
-- Fence: the record's incarnation.
-- Cost: O((limit + entries left) · log pending).
-- include: _fence.lua
-- include: _pool.lua
local group, consumer, limit = ARGV[1], ARGV[2], tonumber(ARGV[4])
local for_jobs = tonumber(ARGV[5])
local why = refused(KEYS[3], ARGV[3])
if why then return {why} end

local taken, trimmed, left = {}, {}, {}
for i = 7, #ARGV do left[ARGV[i]] = true end

local function take(number, id, deliveries, log, fields)
  local numbers = {number, deliveries, #id, #log}
  for i = 1, #fields do numbers[i + 4] = #fields[i] end
  taken[#taken + 1] = table.concat(numbers, ' ') .. '\n' .. id .. log .. table.concat(fields)
end

local function take_pooled(number, id, deliveries)
  local body = redis.call('XRANGE', KEYS[number], id, id, 'COUNT', 1)
  if #body == 0 then
    if bury_trimmed(KEYS[number], group, number, id, '~pool', KEYS[5], ARGV[6]) then
      trimmed[#trimmed + 1] = {number, id}
    end
  else
    redis.call('XCLAIM', KEYS[number], group, consumer, 0, id)
    local log = redis.call('HGET', KEYS[4], number .. ':' .. id) or ''
    take(number, id, deliveries + 1, log, body[1][2])
  end
end

local function take_from_pool(number)
  local room = limit - #taken
  if room <= 0 then return end
  local page = redis.call('XPENDING', KEYS[number], group, '-', '+', room + #ARGV - 6, '~pool')
  for _, pooled in ipairs(page) do
    if room == 0 then return end
    if not left[number .. ':' .. pooled[1]] then
      take_pooled(number, pooled[1], pooled[4])
      room = room - 1
    end
  end
end

local function take_new(number, most)
  if most <= 0 then return end
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', KEYS[number], '>')
  if not reply then return end
  for _, entry in ipairs(reply[1][2]) do
    take(number, entry[1], 1, '', entry[2])
  end
end

take_from_pool(2)
take_from_pool(1)
take_new(2, limit - #taken - for_jobs)
take_new(1, limit - #taken)
if for_jobs > 0 then take_new(2, limit - #taken) end
return {'ok', taken, trimmed}
