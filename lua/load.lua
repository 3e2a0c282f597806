-- load: puts the next chunk of packets into a campaign's stock.
--
-- KEYS  1 campaign  2 stock
-- ARGV  1 hash of the plan  2 packets loaded before this chunk  3 sum of the chunk's amounts  4... "number amount"
-- Reply state, packets loaded, hash of the plan that is there; the chunk was taken if loaded says so
-- Cost  O(packets)
-- First write RPUSH: it grows memory.
-- Repeat changes nothing: the chunk's place is taken.

local has, damage = whole(KEYS[1], 'state', 'loaded', 'hash', 'loaded_amount')
local stocked = redis.call('LLEN', KEYS[2])
if damage then
	return damage
end
if has[1] ~= 'loading' or has[3] ~= ARGV[1] or has[2] ~= ARGV[2] then
	return { has[1] or '', has[2] or '0', has[3] or '' }
end
if stocked ~= tonumber(has[2]) then
	return redis.error_reply('HBSTOCK the stock has ' .. stocked .. ' packets, the campaign says ' .. has[2])
end
redis.call('RPUSH', KEYS[2], unpack(ARGV, 4))
local loaded = string.format('%.0f', has[2] + #ARGV - 3)
redis.call('HSET', KEYS[1], 'loaded', loaded, 'loaded_amount', string.format('%.0f', has[4] + ARGV[3]))
return { 'loading', loaded, has[3] }
