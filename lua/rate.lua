-- rate: gives a worker its turn to hand grants to a sink of bounded rate (GCRA: the key is when the next grant's turn is).
--
-- KEYS  1 rate
-- ARGV  1 grants a second  2 how many grants  3 the longest wait, us
-- Reply "go" and how long to wait before they are handed over, us; or "later" and the time after which to ask again, us
-- Cost  O(1)
-- First write SET: it grows memory, by one key that ends by itself.
--       It runs when Redis is out of memory too (see newDrainScript): what is handed over frees memory.
-- Repeat takes another turn: the grants are handed over later than they might be.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local turn = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
local wait = turn - now
if wait > tonumber(ARGV[3]) then
	return { 'later', string.format('%.0f', wait) }
end
local busy = ARGV[2] * 1000000 / ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', turn + busy), 'PX', string.format('%.0f', math.ceil((wait + busy) / 1000) + 1))
return { 'go', string.format('%.0f', wait) }
