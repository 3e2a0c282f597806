-- close: ends a campaign on one place permanently. After that, grabs answer ended. One close entry with the final
-- counts follows the last grant.
--
-- KEYS  1 meta  2 events  3 campaign  4 receipts  5 withheld  6... stock and sums of each generation
-- ARGV  1 "early" to close it before its window is over, else ""  2 number of the whole campaign's packets in the
--       ledger: the place must have announced all of them and loaded its share; 0 to skip this check, because the
--       campaign is lost on another place
-- Reply "closed", state, seq of the close, its time in ms, the shard's epoch, granted, granted amount, left, left amount; or
--       "refused", the reason (missing, loading, window, frozen, refilling), the state, the end of the window in ms;
--       or "generations" and the number of announced generations, if KEYS has stocks for a different number
-- Cost  O(chunks that were loaded, and packets of one chunk of each generation)
-- First write XADD: it grows memory. The script checks everything before it. It runs when Redis is out of memory too
--       (see newDrainScript): closed campaigns are later purged, which frees memory.
-- Repeat returns the same answer, even after the refund: the counts of a closed campaign do not change. The epoch is
--       the present one, because a close that Redis still has belongs to the present epoch.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local meta = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'frozen')
local c, damage = whole(KEYS[3], 'state', 'to', 'loaded', 'loaded_amount', 'user_campaign')
local closed, half_closed = whole(KEYS[3], 'close_seq', 'closed_at', 'granted', 'granted_amount')
redis.call('XLEN', KEYS[2])
local walk = redis.call('HMGET', KEYS[3], 'generation', 'dealt', 'packets')
local withheld, withheld_amount = withheld_of(KEYS[3], KEYS[5])
local above = redis.call('HGET', KEYS[3], 'above_limit') or 0
local holders = redis.call('HLEN', KEYS[4])
local left, left_amount, fits = withheld or 0, withheld and withheld_amount or 0, true
for i = 6, #KEYS, 2 do
	local n, sum = left_of(KEYS[i], KEYS[i + 1])
	fits = fits and n
	left, left_amount = left + (n or 0), left_amount + (sum or 0)
end

if damage or half_closed then
	return damage or half_closed
end
local function answer(seq, at, granted, amount)
	return { 'closed', c[1], seq, at, meta[2], granted, amount, string.format('%.0f', c[3] - granted),
		string.format('%.0f', c[4] - amount) }
end
if closed[1] then
	return answer(unpack(closed))
end
if not withheld then
	return withheld_amount -- the error
end
local refused = (not c[1] and 'missing') or (c[1] == 'frozen' and 'frozen') or (c[1] == 'loading' and 'loading') or
	(ARGV[1] ~= 'early' and now < tonumber(c[2]) and 'window') or
	(ARGV[2] ~= '0' and (walk[3] ~= ARGV[2] or (walk[1] or '1') ~= (walk[2] or '1')) and 'refilling')
if refused then
	return { 'refused', refused, c[1] or '', c[2] or '0' }
end
if c[1] ~= 'open' and c[1] ~= 'paused' then
	return redis.error_reply('HBSTATE the campaign is ' .. c[1] .. ' and has no close')
end
if #KEYS - 5 ~= 2 * (walk[1] or 1) then
	return { 'generations', walk[1] or '1' }
end
if not fits or c[3] - left < 0 or c[4] - left_amount < 0 then
	return redis.error_reply('HBSTOCK the stock has ' .. left .. ' packets of ' .. string.format('%.0f', left_amount) ..
		', the campaign got ' .. c[3] .. ' of ' .. c[4] .. ', and the sums must fit')
end
local granted, amount = string.format('%.0f', c[3] - left), string.format('%.0f', c[4] - left_amount)
if granted + 0 < holders or granted + 0 > holders * c[5] + above then -- someone removed a packet or a receipt by hand
	return redis.error_reply('HBSTOCK the stock lacks ' .. granted .. ' of ' .. c[3] .. ' packets, and ' .. holders ..
		' users have receipts, at most ' .. c[5] .. ' each and ' .. above .. ' above that limit')
end
local reply = answer('', '', granted, amount)
local seq, ms = string.format('%.0f', meta[1] + 1), string.format('%.0f', now)
redis.call('XADD', KEYS[2], '*', '1', 'close ' .. string.match(KEYS[3], '[^:]+$') .. ' ' .. seq .. ' ' .. meta[2] .. ' ' .. ms ..
	'\n' .. table.concat(reply, ' ', 6))
redis.call('HSET', KEYS[3], 'state', 'closed', 'close_seq', seq, 'closed_at', ms, 'close_epoch', meta[2],
	'granted', granted, 'granted_amount', amount)
redis.call('HSET', KEYS[1], 'seq', seq, 'watched', ms)
reply[2], reply[3], reply[4] = 'closed', seq, ms
return reply
