-- Included by the scripts that move entries to the pool, or find bodies gone.

-- Writes the dead letter of an entry whose body somebody deleted while it was owed.
local function bury_trimmed(dead, maxlen, number, id, consumer)
  redis.call('XADD', dead, 'MAXLEN', '~', maxlen, '*', 'reason', 'trimmed',
    'error', 'the entry was deleted from the stream while it was pending',
    'stream', number, 'entry_id', id, 'consumer', consumer, 'fields', '')
end

-- Adds one line to the crash log of an entry, once per incarnation; kept for 7 days.
local function blame(crashes, number, id, incarnation, line)
  local field = number .. ':' .. id
  local log = redis.call('HGET', crashes, field) or ''
  if string.find(log, incarnation, 1, true) then return end
  redis.call('HSET', crashes, field, log .. line .. '\n')
  redis.call('PEXPIRE', crashes, 604800000)
end

-- Moves up to `most` entries of a consumer to the pool; their delivery counts stay as they are.
-- `crash` is nil, or {key, incarnation, line} to be noted for each entry first.
-- Returns how many were moved and a list of ids whose bodies were gone (buried and acknowledged).
local function move_to_pool(stream, group, consumer, most, number, dead, maxlen, crash)
  local live, trimmed = {}, {}
  for _, owned in ipairs(redis.call('XPENDING', stream, group, '-', '+', most, consumer)) do
    local id = owned[1]
    if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then
      bury_trimmed(dead, maxlen, number, id, consumer)
      redis.call('XACK', stream, group, id)
      trimmed[#trimmed + 1] = id
    else
      if crash then blame(crash[1], number, id, crash[2], crash[3]) end
      live[#live + 1] = id
    end
  end
  if #live > 0 then
    live[#live + 1] = 'JUSTID'
    redis.call('XCLAIM', stream, group, '~pool', 0, unpack(live, 1, #live))
    live[#live] = nil
  end
  return #live, trimmed
end
