-- create_campaign: puts a campaign on one of its places, in state loading, without packets yet.
--
-- KEYS  1 meta  2 campaign  3 stock  4 receipts  5 counters  6 codes  7 sums  8 filter
-- ARGV  1 hash of the plan  2... the other fields of the campaign: name, value, name, value and so on
-- Reply state, packets loaded, hash of the plan in Redis
-- Cost  O(1)
-- First write HSET: it grows memory.
-- Repeat changes nothing and returns the progress of the load.

local has, damage = whole(KEYS[2], 'state', 'loaded', 'hash')
if damage then
	return damage
end
local leftover = redis.call('LLEN', KEYS[3]) + redis.call('HLEN', KEYS[4]) + redis.call('HLEN', KEYS[5]) +
	redis.call('HLEN', KEYS[6]) + redis.call('LLEN', KEYS[7]) + redis.call('HLEN', KEYS[8])
if has[1] then
	return { has[1], has[2], has[3] }
end
if leftover > 0 then
	return redis.error_reply('HBLEFTOVER the campaign is unknown, but its stock, sums, receipts, counters, codes or ' ..
		'filter are there')
end
redis.call('HSET', KEYS[2], 'state', 'loading', unpack(ARGV, 2))
redis.call('HSET', KEYS[2], 'loaded', '0', 'loaded_amount', '0', 'hash', ARGV[1], 'revision', ARGV[1])
return { 'loading', '0', ARGV[1] }
