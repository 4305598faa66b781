#!lua flags=allow-oom
-- drop: delete dead letters for good.
--
-- KEYS[1]  stream   <ns>:dead            dead letters
-- ARGV[1…] ids of the letters
-- Reply    one number per letter: 1 when it was deleted now, 0 when there was none
-- Invariant: nothing but these letters changes.
-- Fence: none is needed: deleting twice changes nothing.
-- Cost: O(letters).
local answers = {}
for i = 1, #ARGV do answers[i] = redis.call('XDEL', KEYS[1], ARGV[i]) end
return answers
