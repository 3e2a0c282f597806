-- purge_campaign: removes a refunded campaign from Redis once its grace is over; its receipts are in the ledger.
--
-- KEYS  1 campaign  2 stock  3 receipts  4 counters  5 codes
--       6 refunded, the campaigns that wait for the end of their grace  7 filter  8 withheld  9 answers  10 sums
--       11... stock and sums of the later generations
-- ARGV  1 the campaign's id  2 grace, ms
-- Reply "gone"; or "waits" and the ms of grace that are left; or "refused" and the state
-- Cost  O(1) here; UNLINK frees the memory in a background thread
-- First write UNLINK: it frees memory. It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "gone".

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local c = redis.call('HMGET', KEYS[1], 'state', 'refunded_at')
local there = redis.call('EXISTS', KEYS[1]) == 1
redis.call('LLEN', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
redis.call('ZCARD', KEYS[6])
redis.call('HLEN', KEYS[7])
redis.call('LLEN', KEYS[8])
redis.call('HLEN', KEYS[9])
for i = 10, #KEYS do
	redis.call('LLEN', KEYS[i])
end
if there and c[1] ~= 'refunded' then
	return { 'refused', c[1] or 'damaged' }
end
if there and c[2] + ARGV[2] > now then
	return { 'waits', string.format('%.0f', c[2] + ARGV[2] - now) }
end
if there then
	redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], unpack(KEYS, 7))
end
redis.call('ZREM', KEYS[6], ARGV[1])
return { 'gone' }
