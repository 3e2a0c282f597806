-- state: changes the state of a campaign: loading -> open or paused (when all packets are loaded), open <-> paused.
--
-- KEYS  1 campaign  2 stock  3 controls
-- ARGV  1 the new state  2 the state that the campaign must have  3 who  4 why  5 name of the decision in controls,
--       for open <-> paused
-- Reply "ok", the state, and for a pause or a resume 1 if it changed the state, else 0; or "refused", the state, and the reason: missing, state, packets
-- Cost  O(1)
-- First write HSET of a field that exists: it grows memory by a few bytes.
--       It runs when Redis is out of memory too (see newDrainScript): a pause stops the grabs that fill the memory.
-- Repeat answers "ok". A repeated pause or resume counts as a new decision: rev rises, and the ledger gets it.

local c, damage = whole(KEYS[1], 'state', 'packets', 'total', 'loaded', 'loaded_amount')
-- share is the number of this place's packets; it is absent if the campaign has only one place.
local share = redis.call('HMGET', KEYS[1], 'share', 'share_amount')
local stocked = redis.call('LLEN', KEYS[2])
redis.call('HLEN', KEYS[3])
if damage then
	return damage
end
if not c[1] then
	return { 'refused', '', 'missing' }
end
if c[1] ~= ARGV[1] and c[1] ~= ARGV[2] then
	return { 'refused', c[1], 'state' }
end
if ARGV[2] ~= 'loading' then
	local changed = decide(KEYS[1], KEYS[3], ARGV[5], 'state', 'pause_', '', ARGV[1], ARGV[3], ARGV[4])
	return { 'ok', ARGV[1], changed and '1' or '0' }
end
if c[1] == ARGV[1] then
	return { 'ok', c[1] }
end
local packets, total = share[1] or c[2], share[2] or c[3]
if stocked ~= tonumber(packets) or c[4] ~= packets or c[5] ~= total then
	return { 'refused', c[1], 'packets' }
end
redis.call('HSET', KEYS[1], 'state', ARGV[1])
return { 'ok', ARGV[1] }
