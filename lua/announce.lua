-- announce: announces a top-up's generation at one place of a campaign. The campaign's revision changes, so callers
-- get the new terms before their next grab. Until the whole generation is loaded here, grabs in it answer refilling.
--
-- KEYS  1 campaign  2 stock and 3 sums of the generation
-- ARGV  1 hash of the plan of the campaign  2 generation  3 hash of the generation's plan  4 number and 5 sum of all
--       packets of the campaign, including this generation  6 number and 7 sum of all packets of this place,
--       including this generation
-- Reply "ok"; or "refused", the reason (missing, state, plan, generation), the state, the newest generation that is
--       announced here
-- Cost  O(1)
-- First write HSET: it grows memory.
-- Repeat answers "ok" and changes nothing, even if the place has been closed in between.

local c, damage = whole(KEYS[1], 'state', 'hash', 'loaded', 'loaded_amount')
local walk = redis.call('HMGET', KEYS[1], 'generation', 'dealt', 'hash:' .. ARGV[2])
local stocked = redis.call('LLEN', KEYS[2]) + redis.call('LLEN', KEYS[3])
if damage then
	return damage
end
local newest = tonumber(walk[1] or 1)
local refused = not c[1] and 'missing' or c[1] == 'frozen' and 'state' or
	(c[2] ~= ARGV[1] or walk[3] and walk[3] ~= ARGV[3]) and 'plan'
if not refused and walk[3] then
	return { 'ok' }
end
if not refused and c[1] ~= 'open' and c[1] ~= 'paused' then
	refused = 'state'
end
if not refused and (tonumber(ARGV[2]) ~= newest + 1 or tonumber(walk[2] or 1) ~= newest) then
	refused = 'generation'
end
if refused then
	return { 'refused', refused, c[1] or '', tostring(newest) }
end
if stocked > 0 then
	return redis.error_reply('HBLEFTOVER the generation is not announced, but its stock and sums have ' .. stocked .. ' lines')
end
if tonumber(ARGV[6]) < tonumber(c[3]) or tonumber(ARGV[7]) < tonumber(c[4]) then
	return redis.error_reply('HBSTOCK the place has got ' .. c[3] .. ' packets of ' .. c[4] .. ' already')
end
redis.call('HSET', KEYS[1], 'generation', ARGV[2], 'hash:' .. ARGV[2], ARGV[3], 'revision', ARGV[1] .. '.' .. ARGV[2],
	'packets', ARGV[4], 'total', ARGV[5], 'share', ARGV[6], 'share_amount', ARGV[7],
	'base', c[3]) -- number of packets of the earlier generations
return { 'ok' }
