-- leave: deletes the witness line of a process that no longer answers users. guard.lua runs before it, so it only
-- runs on an open shard, on the server that the process has used. So if a copy of that Redis lacks the line, it has
-- every grant that the process reported to users.
--
-- KEYS  1 witnesses
-- ARGV  1 the process
-- Reply "ok"
-- Cost  O(1)
-- First write HDEL. It runs when Redis is out of memory too.
-- Repeat changes nothing.

redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
