-- close: ends a campaign on one place for ever. From this step on grabs answer ended, and one close entry with the final
-- counts stands behind the last grant.
--
-- KEYS  1 meta  2 events  3 campaign  4... the stock of each generation
-- ARGV  1 "early" to close it before its window is over, else ""
-- Reply "closed", state, seq of the close, its time in ms, its epoch, granted, granted amount, left, left amount;
--       or "refused", why (missing, loading, window, frozen, refilling), the state, the end of the window in ms; or "generations"
--       and how many are announced, if KEYS has fewer or more
-- Cost  O(generations)
-- First write XADD: it grows memory. Everything is checked before it.
--       It runs when Redis is out of memory too (see newDrainScript): a campaign that was closed and refunded leaves Redis.
-- Repeat gives the same answer, also after the refund: the counts of a closed campaign do not change.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local meta = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'frozen')
local c, damage = whole(KEYS[3], 'state', 'to', 'granted', 'granted_amount', 'loaded', 'loaded_amount')
local closed, half_closed = whole(KEYS[3], 'close_seq', 'closed_at', 'close_epoch')
redis.call('XLEN', KEYS[2])
local walk = redis.call('HMGET', KEYS[3], 'generation', 'dealt')
local stocked = 0
for i = 4, #KEYS do
	stocked = stocked + redis.call('LLEN', KEYS[i])
end

if damage or half_closed then
	return damage or half_closed
end
local left = string.format('%.0f', (c[5] or 0) - (c[3] or 0))
local left_amount = string.format('%.0f', (c[6] or 0) - (c[4] or 0))
if closed[1] then
	return { 'closed', c[1], closed[1], closed[2], closed[3], c[3], c[4], left, left_amount }
end
local refused = (not c[1] and 'missing') or (c[1] == 'frozen' and 'frozen') or (c[1] == 'loading' and 'loading') or
	(ARGV[1] ~= 'early' and now < tonumber(c[2]) and 'window') or ((walk[1] or '1') ~= (walk[2] or '1') and 'refilling')
if refused then
	return { 'refused', refused, c[1] or '', c[2] or '0' }
end
if c[1] ~= 'open' and c[1] ~= 'paused' then
	return redis.error_reply('HBSTATE the campaign is ' .. c[1] .. ' and has no close')
end
if #KEYS - 3 ~= tonumber(walk[1] or 1) then
	return { 'generations', walk[1] or '1' }
end
if stocked ~= tonumber(left) then
	return redis.error_reply('HBSTOCK the stock has ' .. stocked .. ' packets, the campaign says ' .. left)
end
local seq, ms = string.format('%.0f', meta[1] + 1), string.format('%.0f', now)
redis.call('XADD', KEYS[2], '*', 'v', '1', 'k', 'close', 'c', string.match(KEYS[3], '[^:]+$'),
	'q', seq, 'e', meta[2], 't', ms, 'g', c[3] .. ' ' .. c[4] .. ' ' .. left .. ' ' .. left_amount)
redis.call('HSET', KEYS[3], 'state', 'closed', 'close_seq', seq, 'closed_at', ms, 'close_epoch', meta[2])
redis.call('HSET', KEYS[1], 'seq', seq)
return { 'closed', 'closed', seq, ms, meta[2], c[3], c[4], left, left_amount }
