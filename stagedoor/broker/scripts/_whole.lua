-- Included by the scripts that read a call whole.

-- A hash as one value: a line of the lengths of its names and values, then these in turn without separators.
-- (one, because each value costs the caller more time to parse than it costs Redis to put them together)
local function whole(hash)
  local flat, lengths = redis.call('HGETALL', hash), {}
  for i = 1, #flat do lengths[i] = #flat[i] end
  return table.concat(lengths, ' ') .. '\n' .. table.concat(flat)
end
