-- leave: takes the line of a process that answers no more users. In front of it stands guard.lua: it is refused by a frozen shard, and
-- by another server than the one that the process knows. So a copy of Redis that lacks the line has all that the process told.
--
-- KEYS  1 witnesses
-- ARGV  1 the process
-- Reply "ok"
-- Cost  O(1)
-- First write HDEL. It runs when Redis is out of memory too.
-- Repeat changes nothing.

redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
