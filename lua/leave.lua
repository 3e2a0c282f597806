-- leave: deletes the line of a process that no longer answers users. guard.lua runs before it, so a frozen shard
-- refuses it, and so does any server but the one that the process knows. So a copy of Redis that lacks the line has
-- everything that the process reported to users.
--
-- KEYS  1 witnesses
-- ARGV  1 the process
-- Reply "ok"
-- Cost  O(1)
-- First write HDEL. It runs when Redis is out of memory too.
-- Repeat changes nothing.

redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
