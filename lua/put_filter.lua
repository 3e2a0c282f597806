-- put_filter: stores one part of the filter of a campaign's winners at the campaign's home, or the head, which makes
-- the filter valid.
--
-- KEYS  1 campaign  2 filter
-- ARGV  1 revision of the campaign  2 token of the filter's builder  3 number of the part, from 0, or "head"  4 the
--       part, or the head
-- Reply "ok"; or "refused" and the reason: campaign (it is not open, or has another revision), builder (a different
--       builder has put part 0 since)
-- Cost  O(bytes of the part)
-- First write HSET: it grows memory.
-- Repeat stores the same. Part 0 starts a new filter: the script deletes the head of the earlier filter, and refuses
--       further parts from its builder.

local c, damage = whole(KEYS[1], 'state', 'revision')
local by = redis.call('HGET', KEYS[2], 'by')
if damage then
	return damage
end
if c[1] ~= 'open' or c[2] ~= ARGV[1] then
	return { 'refused', 'campaign' }
end
if ARGV[3] ~= '0' and by ~= ARGV[2] then
	return { 'refused', 'builder' }
end
redis.call('HSET', KEYS[2], 'by', ARGV[2], ARGV[3], ARGV[4])
if ARGV[3] == '0' then
	redis.call('HDEL', KEYS[2], 'head')
end
return { 'ok' }
