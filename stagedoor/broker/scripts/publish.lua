#!lua
-- publish: add one entry per outbox row, once, while there is room.
--
-- KEYS[1]  stream   <ns>                            entries of jobs
-- KEYS[2]  hash     <ns>:published:<book>           seq = rows accepted so far
-- KEYS[3…] bitmap   <ns>:published:<book>:<chunk>   one bit per published row
-- ARGV[1]  cap, the stream's length at which rows are refused
-- ARGV[2]  maxlen, the stream's MAXLEN ~
-- ARGV[3]  bits_ttl in ms
-- ARGV[4]  least, rows that the caller knows were accepted
-- ARGV[5…] per row: number of its bitmap in KEYS, bit offset, n, then n field names and values
-- Reply    {before, answers}: before = seq before this call; answers = per row {'added', entry id, seq},
--          {'dup', '', seq} or {'full', '', seq}. No answers when before < least: rows were lost, and
--          nothing is added before they have been offered again, or the count would grow over the loss
-- Invariant: a row has at most one entry while its bit lives; seq grows by one per entry.
-- Fence: the bit, and least. At maxmemory the whole call is refused and the rows wait in the outbox.
-- Cost: O(rows).
local seq = tonumber(redis.call('HGET', KEYS[2], 'seq') or '0')
local before, answers, i = seq, {}, 5
if seq < tonumber(ARGV[4]) then return {before, {}} end
local length = redis.call('XLEN', KEYS[1])
local touched = {}
while i <= #ARGV do
  local bitmap, bit, n = KEYS[tonumber(ARGV[i])], ARGV[i + 1], tonumber(ARGV[i + 2])
  if redis.call('GETBIT', bitmap, bit) == 1 then
    answers[#answers + 1] = {'dup', '', seq}
  elseif length >= tonumber(ARGV[1]) then
    answers[#answers + 1] = {'full', '', seq}
  else
    local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, i + 3, i + 2 + n))
    redis.call('SETBIT', bitmap, bit, 1)
    seq, length, touched[bitmap] = seq + 1, length + 1, true
    redis.call('HSET', KEYS[2], 'seq', seq)
    answers[#answers + 1] = {'added', id, seq}
  end
  i = i + 3 + n
end
for bitmap in pairs(touched) do redis.call('PEXPIRE', bitmap, ARGV[3]) end
return {before, answers}
