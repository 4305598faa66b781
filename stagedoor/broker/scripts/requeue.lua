#!lua
-- requeue: put the jobs of dead letters back into their streams, each letter at most once.
--
-- KEYS[1]  stream   <ns>                 entries of jobs
-- KEYS[2]  stream   <ns>:critical        continuations of started flows
-- KEYS[3]  stream   <ns>:dead            dead letters
-- ARGV[1]  cap, the length of the stream of jobs at which a job is refused
-- ARGV[2…] per letter: its id, stream number, n, then n field names and values of the new entry
-- Reply    one pair per letter: {'added', id of the new entry}, {'gone', ''}: there is no such letter any more,
--          or {'full', ''}: the stream is at its cap, the letter stays
-- Invariant: a job is a letter or an entry, never both and never neither.
-- Fence: the letter itself: whoever comes second finds none.
-- Cost: O(letters). The caller has made the new fields out of the letter; a letter never changes.
local length, answers, i = redis.call('XLEN', KEYS[1]), {}, 2
while i <= #ARGV do
  local letter, number, n = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if #redis.call('XRANGE', KEYS[3], letter, letter, 'COUNT', 1) == 0 then
    answers[#answers + 1] = {'gone', ''}
  elseif number == 1 and length >= tonumber(ARGV[1]) then
    answers[#answers + 1] = {'full', ''}
  else
    local id = redis.call('XADD', KEYS[number], '*', unpack(ARGV, i + 3, i + 2 + n))
    redis.call('XDEL', KEYS[3], letter)
    if number == 1 then length = length + 1 end
    answers[#answers + 1] = {'added', id}
  end
  i = i + 3 + n
end
return answers
