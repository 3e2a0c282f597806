-- withhold: moves packets from a campaign's stock to a list of withheld packets, on a frozen shard. A process may
-- have reported these packets to users who are unknown. They count as left, but no grab gets them. An operator can
-- grant one of them or return all to the stock.
--
-- KEYS  1 meta  2 campaign  3 withheld  4... stock and sums of each generation, the one that is being dealt included
-- ARGV  1 the attempt, see mend.lua  2 the last event for which packets are withheld with this call, 0 for the rest of
--       a place  3 how many packets of a lost top-up are to be withheld once it is dealt again, see load.lua  4 the number
--       of its last packet  5... for each generation how many packets from the front are examined; then the packets among
--       them that stay, "number amount": they are granted next
-- Reply "ok"; or "changed": another attempt restores the shard
-- Cost  O(packets that are examined)
-- First write LTRIM: RPUSH then uses the memory that it freed. The script checks the types before it. It runs when
--       Redis is out of memory too. The field withhold_next is set at the end.
-- Repeat with a last event: answers "ok" and changes nothing, because the field withheld_last has that event or a later
--       one. With 0: withholds the next packets from the front, also if the caller did not see the first reply.

local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend')
local withheld, amount = withheld_of(KEYS[2], KEYS[3])
local last = redis.call('HGET', KEYS[2], 'withheld_last')
for i = 4, #KEYS do
	redis.call('LLEN', KEYS[i])
end
if not m[1] or m[2] ~= ARGV[1] then
	return { 'changed' }
end
if not withheld then
	return amount
end
if ARGV[2] ~= '0' and tonumber(last or 0) >= tonumber(ARGV[2]) then
	return { 'ok' }
end
local generations, stays = (#KEYS - 3) / 2, {}
local owed, upto, moved = withhold_next(KEYS[2])
local dealt = tonumber(redis.call('HGET', KEYS[2], 'dealt') or 1)
for i = 5 + generations, #ARGV do
	stays[ARGV[i]] = true
end
local marks = {}
for g = 1, generations do
	if ARGV[4 + g] ~= '0' then
		local list, damage = marks_of(KEYS[3 + 2 * g])
		if not list then
			return damage
		end
		marks[g] = list
	end
end
for g = 1, generations do
	local k, n = 2 + 2 * g, tonumber(ARGV[4 + g])
	local packets = n > 0 and redis.call('LRANGE', KEYS[k], 0, n - 1) or {}
	n = #packets -- fewer if a repeat has moved the others
	local length = redis.call('LLEN', KEYS[k])
	if n > 0 then
		redis.call('LTRIM', KEYS[k], n, -1)
	end
	local stay, move, taken = {}, {}, {}
	for i = #packets, 1, -1 do
		if stays[packets[i]] then
			stay[#stay + 1] = packets[i]
		end
	end
	for place, packet in ipairs(packets) do
		if not stays[packet] then
			local worth = string.match(packet, ' (%d+)$') + 0
			move[#move + 1], taken[#taken + 1] = packet, { place - 1, worth }
			amount = amount + worth
		end
	end
	for i = 1, #stay, 5000 do -- unpack takes fewer than 8,000 values
		redis.call('LPUSH', KEYS[k], unpack(stay, i, math.min(i + 4999, #stay)))
	end
	for i = 1, #move, 5000 do
		redis.call('RPUSH', KEYS[3], unpack(move, i, math.min(i + 4999, #move)))
	end
	withheld = withheld + #move
	if g > dealt then -- load.lua counts them as packets that the stock has got
		moved = moved + #move
	end
	if #move > 0 and #stay > 0 then
		shift_marks(KEYS[k + 1], marks[g], length, taken)
	end
end
set_withheld(KEYS[2], withheld, amount)
owed = ARGV[2] == '0' and math.max(owed, tonumber(ARGV[3])) or owed + ARGV[3]
set_withhold_next(KEYS[2], owed, math.max(upto, tonumber(ARGV[4])), moved)
if ARGV[2] ~= '0' then
	redis.call('HSET', KEYS[2], 'withheld_last', ARGV[2])
end
return { 'ok' }
