-- Included by the scripts that write about entries: who may write.

-- Returns nil when the record carries this incarnation, else why not:
-- 'absent' (the record is gone: flushed or expired) or 'taken' (another process has the name).
local function refused(record, incarnation)
  local seen = redis.call('HGET', record, 'incarnation')
  if seen == incarnation then return nil end
  if not seen then return 'absent' end
  return 'taken'
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
