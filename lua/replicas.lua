-- replicas: stores the highest number of replicas that were connected to the shard's primary since the shard was
-- opened there. Grabs of durability class replica wait for that many.
--
-- KEYS  1 meta
-- ARGV  1 how many are connected now
-- Reply "ok"
-- Cost  O(1)
-- First write HSET: it grows memory, by a number at most. It runs when Redis is out of memory too.
-- Repeat changes nothing. The number never falls.

if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'replicas') or 0) then
	redis.call('HSET', KEYS[1], 'replicas', ARGV[1])
end
return { 'ok' }
