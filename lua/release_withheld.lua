-- release_withheld: returns packets that a restore has withheld to the stock of the newest generation. They are
-- granted next.
--
-- KEYS  1 meta  2 campaign  3 withheld  4 stock and 5 sums of the newest generation
-- ARGV  1 that generation  2 how many packets are returned at most, a chunk
-- Reply "ok" and how many are still withheld; or "refused" and the reason: the campaign's state if it is neither open
--       nor paused, "places" if it is on several shards, because callers may no longer try this one, "generation" if
--       ARGV 1 is not the newest one, or is not dealt yet
-- Cost  O(packets that are returned, and packets of one chunk)
-- First write LTRIM or LPUSH of the sums: memory grows until the last LTRIM frees the same amount. The script checks
--       everything before it.
-- Repeat returns the next packets.

local seq = redis.call('HGET', KEYS[1], 'seq')
local c, damage = whole(KEYS[2], 'state', 'revision')
local more = redis.call('HMGET', KEYS[2], 'places', 'generation', 'dealt')
local withheld, amount = withheld_of(KEYS[2], KEYS[3])
local left, left_amount = left_of(KEYS[4], KEYS[5])
if damage or not withheld then
	return damage or amount
end
local n = math.min(withheld, tonumber(ARGV[2]))
local refused = c[1] ~= 'open' and c[1] ~= 'paused' and (c[1] or 'missing') or more[1] and 'places' or
	((more[2] or '1') ~= ARGV[1] or (more[3] or '1') ~= ARGV[1]) and 'generation'
if refused then
	return { 'refused', refused }
end
local packets, all = string.match(redis.call('LINDEX', KEYS[5], -1) or '', '^(%d+) (%d+)$')
if not left or not packets then
	return redis.error_reply('HBSTOCK the sums ' .. KEYS[5] .. ' do not fit the stock')
end
if n == 0 then
	return { 'ok', '0' }
end
-- The first element of the sums must be that of the packets that are no longer in the stock. Then left_of only adds
-- up the packets of this chunk.
local lacks = packets - left
local first = string.format('%.0f', lacks) .. ' ' .. string.format('%.0f', all - left_amount)
while tonumber(string.match(redis.call('LINDEX', KEYS[5], 0), '^%d+')) < lacks do
	redis.call('LTRIM', KEYS[5], 1, -1)
end
if redis.call('LINDEX', KEYS[5], 0) ~= first then
	redis.call('LPUSH', KEYS[5], first)
end
local back, sum = redis.call('LRANGE', KEYS[3], -n, -1), 0
for i = n, 1, -1 do
	redis.call('LPUSH', KEYS[4], back[i])
	sum = sum + string.match(back[i], ' (%d+)$')
end
redis.call('LTRIM', KEYS[3], 0, -n - 1)
local still = string.format('%.0f', withheld - n)
set_withheld(KEYS[2], withheld - n, amount - sum)
-- The new revision makes callers forget that no packets were left.
redis.call('HSET', KEYS[2], 'revision', string.gsub(c[2], '%.r%d+$', '') .. '.r' .. seq .. still)
return { 'ok', still }
