-- end_lost: ends a campaign of which Redis has lost data, after the ledger has refunded it. After that, grabs answer
-- ended, and the grace of the campaign begins. There is no close entry, because its counts would be unknown. If the
-- campaign is missing, the script creates a stub.
--
-- KEYS  1 campaign  2 refunded, the campaigns that wait for the end of their grace  3 withheld  4... stock and sums of
--       each generation
-- ARGV  1 the campaign's id; then from the ledger: 2 packets  3 total; then this shard's part of the ledger's
--       numbers: 4 packets  5 their amount  6 packets granted  7 their amount; then 8 the number of the campaign's
--       shards, for a stub
-- Reply "ok"; or "refused" and the state: the campaign is complete, so it ends by close and refund
-- Cost  O(log of the campaigns that wait); UNLINK frees the stock in a background thread
-- First write ZADD: it grows memory, by one id and a stub.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "ok" and changes nothing.

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local state = redis.call('HGET', KEYS[1], 'state')
local there = redis.call('EXISTS', KEYS[1]) == 1
redis.call('ZCARD', KEYS[2])
for i = 3, #KEYS do
	redis.call('LLEN', KEYS[i])
end
if state == 'refunded' then
	return { 'ok' }
end
if there and state ~= 'frozen' then
	return { 'refused', state or 'damaged' }
end
redis.call('ZADD', KEYS[2], now, ARGV[1])
stub(KEYS[1])
if not there and ARGV[8] ~= '1' then
	redis.call('HSET', KEYS[1], 'places', ARGV[8]) -- the home's stub tells on which shards the campaign is
end
redis.call('HSET', KEYS[1], 'state', 'refunded', 'refunded_at', now, 'lost', '1', 'close_seq', '0', 'closed_at', now, 'close_epoch', '0',
	'packets', ARGV[2], 'total', ARGV[3], 'loaded', ARGV[4], 'loaded_amount', ARGV[5], 'granted', ARGV[6], 'granted_amount', ARGV[7])
redis.call('HDEL', KEYS[1], 'withheld')
for i = 3, #KEYS do
	redis.call('UNLINK', KEYS[i])
end
return { 'ok' }
