-- Included by the scripts that write about entries: who may write.

-- Returns nil when the record carries this incarnation, else why not:
-- 'absent' (the record is gone: flushed, expired, or something else is there) or 'taken' (another process has the name).
local function refused(record, incarnation)
  local seen = redis.pcall('HGET', record, 'incarnation')
  if seen == incarnation then return nil end
  if not seen or type(seen) == 'table' then return 'absent' end
  return 'taken'
end

-- Returns incarnation, beat and stopping of a record; none of them where there is none, or something that is no record.
local function record_of(key)
  return redis.pcall('HMGET', key, 'incarnation', 'beat', 'stopping')
end

-- Whether the pending list shows this consumer with this delivery count.
local function holds(stream, group, consumer, id, deliveries)
  local seen = redis.call('XPENDING', stream, group, id, id, 1)
  return #seen == 1 and seen[1][2] == consumer and seen[1][4] == deliveries
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whether a call that judges others comes too late to do so. A server that was frozen serves what was sent before
-- first, and by then everybody's beats and renewals are old.
local function is_late(asked, patience)
  return now_ms() - tonumber(asked) > patience / 4
end
