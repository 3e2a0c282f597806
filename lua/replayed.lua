-- replayed: records the progress of a named replay on a shard, so that the next run continues at this seq.
--
-- KEYS  1 replay
-- ARGV  1 the next seq to examine; 0 if the replay has reached its end, so that a further run starts at the first seq
-- Reply 1
-- Cost  O(1)
-- First write HSET: it grows memory, but also runs when Redis is full.
-- Repeat changes nothing.

if redis.call('HEXISTS', KEYS[1], 'covers') == 0 then
	return redis.error_reply('HBDAMAGED this replay was never begun, or has lost its field covers; nothing was changed')
end
redis.call('HSET', KEYS[1], 'next', ARGV[1])
return { '1' }
