-- raise_done_floor: raises the lowest seq whose done bits still exist. Every group has finished the events below it, and
-- they have left the stream.
--
-- KEYS  1 meta
-- ARGV  1 the seq
-- Reply "ok"
-- Cost  O(1)
-- First write HSET: it may grow memory, by a number at most. It runs when Redis is out of memory too: what it allows frees more.
-- Repeat changes nothing. The floor never falls, so of two callers the higher seq stays.

if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'done_floor') or 0) then
	redis.call('HSET', KEYS[1], 'done_floor', ARGV[1])
end
return { 'ok' }
