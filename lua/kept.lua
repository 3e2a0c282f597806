-- kept: notes from which event on the done bits of a shard are kept. All before it were finished by every group and have left the stream.
--
-- KEYS  1 meta
-- ARGV  1 seq of the first event whose done bit is kept
-- Reply "ok"
-- Cost  O(1)
-- First write HSET: it may grow memory, by a number at most. It runs when Redis is out of memory too: what it allows frees more.
-- Repeat changes nothing. What is noted never falls, so of two callers the later seq stays.

if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'kept') or 0) then
	redis.call('HSET', KEYS[1], 'kept', ARGV[1])
end
return { 'ok' }
