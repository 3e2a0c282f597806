-- replace: gives a claim another payload, before it is pushed in another way.
--
-- KEYS  1 claims
-- ARGV  1 claim id  2 fence  3 owner  4 lease, ms  5 payload
-- Reply "ok" and the claim's new fence, or "fenced" if it was taken over or is gone
-- Cost  O(1)
-- First write HSET: it may grow memory.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "fenced": the fence has risen.

local claim = redis.call('HGET', KEYS[1], ARGV[1])
if not claim or string.match(claim, '^%d+') ~= ARGV[2] then
	return { 'fenced' }
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local fence = string.format('%.0f', tonumber(redis.call('HGET', KEYS[1], '#fence')) + 1)
local events = string.match(claim, '\n([^\n]*)\n')
redis.call('HSET', KEYS[1], '#fence', fence, ARGV[1],
	fence .. ' ' .. string.format('%.0f', now + ARGV[4]) .. ' ' .. ARGV[3] .. '\n' .. events .. '\n' .. ARGV[5])
return { 'ok', fence }
