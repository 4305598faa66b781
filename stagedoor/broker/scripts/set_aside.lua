#!lua flags=allow-oom
-- set_aside: give a key that holds something else than it must another name.
--
-- KEYS[1]  any      <ns>:<rest>                    a key of ours, or <ns> itself, that may hold something else
-- KEYS[2]  any      <ns>:<rest>:misplaced:<time>   its new name
-- ARGV[1]  type that the first must have
-- Reply    1 when it was renamed, 0 when it is in order by now, or gone
-- Invariant: what is of the right type stays where it is, and nothing is lost.
-- Fence: the type, in the call that renames.
-- Cost: O(1).
local found = redis.call('TYPE', KEYS[1]).ok
if found == ARGV[1] or found == 'none' then return 0 end
return redis.call('RENAMENX', KEYS[1], KEYS[2])
