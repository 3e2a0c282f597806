-- rate: assigns a worker its turn to hand grants to a sink of bounded rate (GCRA: the key is when the next grant's
-- turn is).
--
-- A changed bound applies at once. The stored turn is never further ahead than waiting callers can have booked at the
-- present bound: the longest wait and one portion.
--
-- KEYS  1 rate
-- ARGV  1 grants a second  2 how many grants, 0 to ask only  3 the longest wait, us  4 the largest portion, grants
-- Reply "go" and how long to wait before the grants are handed over, us; or "later" and the time until the turn, us
-- Cost  O(1)
-- First write SET: it grows memory, by one key that expires by itself.
--       It runs when Redis is out of memory too (see newDrainScript): delivered grants free memory.
-- Repeat takes another turn: the grants are handed over later than possible.

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
