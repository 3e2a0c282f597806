-- receipts: returns the receipts of users in a campaign on one shard.
--
-- KEYS  1 campaign  2 receipts
-- ARGV  1 to 128 users
-- Reply state of the campaign, "" if the shard does not have it; start of the window in ms; Redis time in ms; then
--       the receipts of each user, "" for none
-- Cost  O(users and their receipts)
-- First write none: it only reads.
-- Repeat reads again.

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local camp, damage = whole(KEYS[1], 'state', 'from')
if damage then
	return damage
end
local held = redis.call('HMGET', KEYS[2], unpack(ARGV))
for i = 1, #held do
	held[i] = held[i] or ''
end
return { camp[1] or '', camp[2] or '0', now, unpack(held) }
