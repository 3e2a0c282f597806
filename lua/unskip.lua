-- unskip: removes empty ranges from the field skipped of a shard's meta. Earlier builds wrote such a range, for
-- example "65536-65535", when a server was started twice without an event in between.
--
-- KEYS  1 meta
-- ARGV  none
-- Reply "ok"
-- Cost  O(ranges), one for each opening
-- First write HSET: the field gets shorter. It runs when Redis is out of memory too.
-- Repeat changes nothing.

local kept, removed = {}, false
for first, last, accepted in string.gmatch(redis.call('HGET', KEYS[1], 'skipped') or '', '(%d+)-(%d+)(%*?)') do
	if tonumber(last) < tonumber(first) then
		removed = true
	else
		kept[#kept + 1] = first .. '-' .. last .. accepted
	end
end
if removed and #kept == 0 then
	redis.call('HDEL', KEYS[1], 'skipped')
elseif removed then
	redis.call('HSET', KEYS[1], 'skipped', table.concat(kept, ','))
end
return { 'ok' }
