-- replay: begins a named replay on a shard. If the replay exists, it returns the stored values. Its range never
-- changes afterwards.
--
-- KEYS  1 replay  2 meta
-- ARGV  1 what it covers (text)  2 last seq to cover, 0 for the shard's present last seq
-- Reply what the replay covers and its last seq, both from the first call; the next seq to examine, 0 for the first
--       seq; the time of the first call, in ms, and the shard's epoch then
-- Cost  O(1)
-- First write HSET: it grows memory, but also runs when Redis is full.
-- Repeat writes nothing and returns the same reply.

local has = redis.call('HMGET', KEYS[1], 'covers', 'last', 'next', 'begun', 'epoch')
local meta = redis.call('HMGET', KEYS[2], 'seq', 'epoch')
if has[1] then
	return { has[1], has[2], has[3] or '0', has[4], has[5] }
end
local last = tonumber(meta[1])
if ARGV[2] ~= '0' then
	last = math.min(last, tonumber(ARGV[2]))
end
local text = string.format('%.0f', last)
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
redis.call('HSET', KEYS[1], 'covers', ARGV[1], 'last', text, 'begun', now, 'epoch', meta[2])
return { ARGV[1], text, '0', now, meta[2] }
