-- Included by the scripts that move entries to the pool, or find bodies gone.

-- Moves an entry whose body somebody deleted while it was owed to the dead letters.
-- Returns whether it could; where the dead letters are no stream it stays pending, and its neighbours go on.
local function bury_trimmed(stream, group, number, id, consumer, dead, maxlen)
  local written = redis.pcall('XADD', dead, 'MAXLEN', '~', maxlen, '*', 'reason', 'trimmed',
    'error', 'the entry was deleted from the stream while it was pending',
    'stream', number, 'entry_id', id, 'consumer', consumer, 'fields', '')
  if type(written) == 'table' and written.err then return false end
  redis.call('XACK', stream, group, id)
  return true
end

-- Adds one line to the crash log of an entry, once per incarnation; kept for 7 days. A name is one line, whoever chose it.
local function blame(crashes, number, id, incarnation, line)
  local field = number .. ':' .. id
  local log = redis.call('HGET', crashes, field) or ''
  if string.find(log, incarnation, 1, true) then return end
  redis.call('HSET', crashes, field, log .. string.gsub(line, '%c', '?') .. '\n')
  redis.call('PEXPIRE', crashes, 604800000)
end

-- Moves up to `most` entries of a consumer to the pool; their delivery counts stay as they are.
-- `crash` is nil, or {key, incarnation, line} to be noted for each entry first.
-- Returns how many were moved, a list of ids whose bodies were gone (buried and acknowledged),
-- and whether there may be more.
local function move_to_pool(stream, group, consumer, most, number, dead, maxlen, crash)
  local live, trimmed = {}, {}
  local page = redis.call('XPENDING', stream, group, '-', '+', most, consumer)
  for _, owned in ipairs(page) do
    local id = owned[1]
    if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then
      if bury_trimmed(stream, group, number, id, consumer, dead, maxlen) then trimmed[#trimmed + 1] = id end
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
  return #live, trimmed, #page == most and #live + #trimmed > 0
end
