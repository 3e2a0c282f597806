-- winners: returns the users who have packets of a campaign on one place. It refuses while packets are left there.
-- When none is left, the result is final until a generation is announced.
--
-- KEYS  1 campaign  2 receipts  3... the stock of each generation
-- ARGV  1 revision of the campaign  2 cursor, "0" to begin, "" to only count the users  3 roughly how many users one
--       call returns
-- Reply "all" and the number of users; or "some", the next cursor ("0" after the last users) and users, possibly with
--       repeats; or "refused" and the reason: missing, the state if it is not open, revision, generations, dealing,
--       packets
-- Cost  O(users that are returned, and generations)
-- First write none: it only reads.
-- Repeat reads again.

local c, damage = whole(KEYS[1], 'state', 'revision')
local walk = redis.call('HMGET', KEYS[1], 'generation', 'dealt')
local users, left = redis.call('HLEN', KEYS[2]), 0
for i = 3, #KEYS do
	left = left + redis.call('LLEN', KEYS[i])
end
if damage then
	return damage
end
local newest = tonumber(walk[1] or 1)
local refused = not c[1] and 'missing' or c[1] ~= 'open' and c[1] or c[2] ~= ARGV[1] and 'revision' or
	#KEYS - 2 ~= newest and 'generations' or tonumber(walk[2] or 1) ~= newest and 'dealing' or left > 0 and 'packets'
if refused then
	return { 'refused', refused }
end
if ARGV[2] == '' then
	return { 'all', tostring(users) }
end
local page = redis.call('HSCAN', KEYS[2], ARGV[2], 'COUNT', ARGV[3])
local reply = { 'some', page[1] }
for i = 1, #page[2], 2 do
	reply[#reply + 1] = page[2][i]
end
return reply
