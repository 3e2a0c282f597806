-- withhold: moves packets from a campaign's stock to a list of withheld packets, on a frozen shard. A process may
-- have reported these packets to users who are unknown. They count as left, but no grab gets them. An operator can
-- grant one of them or return all to the stock.
--
-- KEYS  1 meta  2 campaign  3 withheld  4... stock and sums of each generation
-- ARGV  1 the attempt, see mend.lua  2... for each generation how many packets from the front are examined; then the
--       packets among them that stay, "number amount": they are granted next
-- Reply "ok"; or "changed": another attempt restores the shard
-- Cost  O(packets that are examined)
-- First write LTRIM: RPUSH then uses the memory that it freed. The script checks the types before it. It runs when
--       Redis is out of memory too.
-- Repeat answers "ok" and changes nothing, because the field withheld has the epoch of the attempt.

local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend')
local withheld, amount, by = withheld_of(KEYS[2], KEYS[3])
for i = 4, #KEYS do
	redis.call('LLEN', KEYS[i])
end
local epoch = string.match(ARGV[1], '^%d+')
if not m[1] or m[2] ~= ARGV[1] then
	return { 'changed' }
end
if not withheld then
	return amount
end
if by == epoch then
	return { 'ok' }
end
local generations, stay = (#KEYS - 3) / 2, {}
for i = 2 + generations, #ARGV do
	stay[ARGV[i]] = true
end
local ends = {}
for g = 1, generations do
	ends[g] = string.match(redis.call('LINDEX', KEYS[3 + 2 * g], -1) or '', '^%d+')
	if ARGV[1 + g] ~= '0' and not ends[g] then
		return redis.error_reply('HBDAMAGED the list ' .. KEYS[3 + 2 * g] .. ' is empty; nothing was changed now')
	end
end
for g = 1, generations do
	local k, n = 2 + 2 * g, tonumber(ARGV[1 + g])
	local packets = n > 0 and redis.call('LRANGE', KEYS[k], 0, n - 1) or {}
	local position = n > 0 and ends[g] - redis.call('LLEN', KEYS[k]) + n
	if n > 0 then
		redis.call('LTRIM', KEYS[k], n, -1)
	end
	for i = #packets, 1, -1 do
		if stay[packets[i]] then
			redis.call('LPUSH', KEYS[k], packets[i])
		end
	end
	for _, packet in ipairs(packets) do
		if not stay[packet] then
			redis.call('RPUSH', KEYS[3], packet)
			withheld, amount = withheld + 1, amount + string.match(packet, ' (%d+)$')
		end
	end
	-- Sums up to the last moved packet are invalid: see regrant.lua.
	while n > 0 and tonumber(string.match(redis.call('LINDEX', KEYS[k + 1], 0), '^%d+')) < position do
		redis.call('LTRIM', KEYS[k + 1], 1, -1)
	end
end
set_withheld(KEYS[2], withheld, amount, epoch)
return { 'ok' }
