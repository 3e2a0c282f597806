-- raise_done_floor: raises the lowest seq whose done bits still exist, and deletes the bits below it. No event below
-- it is in the stream any more.
--
-- KEYS  1 meta  2... the done bitmaps to delete; all their events are below the seq
-- ARGV  1 the seq
-- Reply "ok"
-- Cost  O(bitmaps) here; UNLINK frees the memory in a background thread
-- First write HSET: the script checks all types before it. It grows memory by one number at most, and the deletion
--       frees more. So it runs when Redis is out of memory too.
-- Repeat changes nothing. The floor never falls, even if a later call has a lower seq.

for i = 2, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'done_floor') or 0) then
	redis.call('HSET', KEYS[1], 'done_floor', ARGV[1])
end
for i = 2, #KEYS do
	redis.call('UNLINK', KEYS[i])
end
return { 'ok' }
