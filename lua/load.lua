-- load: puts the next chunk of packets into a campaign's stock on one place. The first generation is loaded before
-- the campaign opens. A later generation is loaded after its announcement at this place. Its packets are granted once
-- all of them are loaded.
--
-- KEYS  1 campaign  2 stock and 3 sums of the generation  4 withheld
-- ARGV  1 hash of the plan of the campaign  2 generation  3 number of packets, of all generations, that the place had
--       before this chunk  4 sum of the chunk's amounts  5... "number amount"; none if the place has no packets of a
--       later generation
-- Reply state, packets loaded, hash of the plan in Redis, the newest complete generation. The chunk was stored if the
--       number of packets loaded includes it
--       A restore may have left packets of a lost top-up to be withheld, see withhold.lua: the first packets of a chunk
--       then go to the list of withheld packets, as if a restore had taken them from the front of the stock.
-- Cost  O(packets)
-- First write RPUSH: it grows memory. Each chunk adds the number and sum of all loaded packets to the list of sums.
--       With it, the granted amount can be computed without reading the whole stock.
-- Repeat changes nothing.

local has, damage = whole(KEYS[1], 'state', 'loaded', 'hash', 'loaded_amount')
local walk = redis.call('HMGET', KEYS[1], 'generation', 'dealt', 'share', 'share_amount', 'base', 'packets')
local stocked = redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
if damage then
	return damage
end
local owed, upto, moved = withhold_next(KEYS[1])
local dealt, generation = tonumber(walk[2] or 1), tonumber(ARGV[2])
local first = generation == 1 and has[1] == 'loading'
local later = generation == dealt + 1 and generation == tonumber(walk[1] or 1) and (has[1] == 'open' or has[1] == 'paused')
if not first and not later or has[3] ~= ARGV[1] or has[2] ~= ARGV[3] then
	return { has[1] or '', has[2] or '0', has[3] or '', has[1] and not first and has[1] ~= 'loading' and tostring(dealt) or '0' }
end
local loaded, amount = string.format('%.0f', has[2] + #ARGV - 4), string.format('%.0f', has[4] + ARGV[4])
local wanted = has[2] - (later and walk[5] + moved or 0)
if stocked ~= wanted then
	return redis.error_reply('HBSTOCK the stock has ' .. stocked .. ' packets, the campaign says ' .. wanted)
end
local last = later and loaded == walk[3]
if later and tonumber(loaded) > tonumber(walk[3]) or last and amount ~= walk[4] then
	return redis.error_reply('HBSTOCK the place would come to ' .. loaded .. ' packets of ' .. amount ..
		', announced are ' .. walk[3] .. ' of ' .. walk[4])
end
local hold = 0
if later and #ARGV > 4 and tonumber(string.match(ARGV[5], '^%d+')) <= upto then
	hold = math.min(owed, #ARGV - 4)
end
if hold > 0 then
	local packets, worth = withheld_of(KEYS[1], KEYS[4])
	if not packets then
		return worth
	end
	for i = 5, 4 + hold do
		worth = worth + string.match(ARGV[i], ' (%d+)$')
	end
	redis.call('RPUSH', KEYS[4], unpack(ARGV, 5, 4 + hold))
	set_withheld(KEYS[1], packets + hold, worth)
end
if hold > 0 or last and owed + moved > 0 then
	local over = last and tonumber(walk[6]) >= upto
	set_withhold_next(KEYS[1], over and 0 or owed - hold, upto, last and 0 or moved + hold)
end
if #ARGV > 4 + hold then
	redis.call('RPUSH', KEYS[2], unpack(ARGV, 5 + hold))
end
if #ARGV > 4 then
	redis.call('RPUSH', KEYS[3], loaded .. ' ' .. amount)
end
redis.call('HSET', KEYS[1], 'loaded', loaded, 'loaded_amount', amount)
if last then
	redis.call('HSET', KEYS[1], 'dealt', ARGV[2])
end
return { has[1], loaded, has[3], last and ARGV[2] or first and '0' or tostring(dealt) }
