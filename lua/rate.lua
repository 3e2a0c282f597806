-- rate: reserves the next deliveries to a sink with a rate limit for a worker. It is GCRA: the key is the earliest
-- time of the next delivery.
--
-- A changed limit applies at once: the stored time is never taken as later than the longest wait plus one portion at
-- the present limit. Callers can't have reserved more than that.
--
-- KEYS  1 rate
-- ARGV  1 grants a second  2 number of grants, 0 to ask only  3 the longest wait, us  4 the largest portion, grants
-- Reply "go" and how long to wait before the delivery, us; or "later" and the wait, us, if it is above ARGV 3
-- Cost  O(1)
-- First write SET: it grows memory, by one key that expires. It runs when Redis is out of memory too (see
--       newDrainScript): delivered grants free memory.
-- Repeat reserves again, so the grants are delivered later than necessary.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local stands = tonumber(redis.call('GET', KEYS[1]) or 0)
local turn = math.min(math.max(now, stands), now + ARGV[3] + ARGV[4] * 1000000 / ARGV[1])
local wait = turn - now
if turn < stands then
	redis.call('SET', KEYS[1], string.format('%.0f', turn), 'PX', string.format('%.0f', math.ceil(wait / 1000) + 1))
end
if wait > tonumber(ARGV[3]) then
	return { 'later', string.format('%.0f', wait) }
end
local busy = ARGV[2] * 1000000 / ARGV[1]
if busy == 0 then
	return { 'go', string.format('%.0f', wait) }
end
redis.call('SET', KEYS[1], string.format('%.0f', turn + busy), 'PX', string.format('%.0f', math.ceil((wait + busy) / 1000) + 1))
return { 'go', string.format('%.0f', wait) }
