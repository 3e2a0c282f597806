-- refunded: records that a closed campaign was refunded in the ledger. Its grace begins with that.
--
-- KEYS  1 campaign  2 refunded, the campaigns that wait for the end of their grace
-- ARGV  1 the campaign's id
-- Reply "ok" and the time of the record in ms, or "refused" and the state ("" if the shard does not have the
--       campaign)
-- Cost  O(log of the campaigns that wait)
-- First write ZADD: it grows memory, by one id.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "ok" with the time of the first call.

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local c = redis.call('HMGET', KEYS[1], 'state', 'refunded_at')
redis.call('ZCARD', KEYS[2])
if c[1] == 'refunded' then
	return { 'ok', c[2] }
end
if c[1] ~= 'closed' then
	return { 'refused', c[1] or '' }
end
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'refunded', 'refunded_at', now)
return { 'ok', now }
