-- replay: begins a named replay on a shard. If the replay exists, it returns the stored values. Its range never
-- changes afterwards.
--
-- KEYS  1 replay  2 meta
-- ARGV  1 what it covers (text)  2 last seq to cover, 0 for the shard's present last seq
-- Reply what the replay covers and its last seq, both from the first call; the next seq to examine, 0 for the first
--       seq
-- Cost  O(1)
-- First write HSET: it grows memory, but also runs when Redis is full.
-- Repeat writes nothing and returns the same reply.

local has = redis.call('HMGET', KEYS[1], 'covers', 'last', 'next')
local seq = redis.call('HGET', KEYS[2], 'seq')
if has[1] then
	return { has[1], has[2], has[3] or '0' }
end
local last = tonumber(seq)
if ARGV[2] ~= '0' then
	last = math.min(last, tonumber(ARGV[2]))
end
local text = string.format('%.0f', last)
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
redis.call('HSET', KEYS[1], 'covers', ARGV[1], 'last', text, 'begun', now)
return { ARGV[1], text, '0' }
