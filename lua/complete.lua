-- complete: ends a claim whose push arrived: its events are done, the claim is gone.
--
-- KEYS  1 claims  2... the chunks of the sink's done bitmap
-- ARGV  1 claim id  2 fence  3... the events as marks: number of the key, first bit, last bit
-- Reply "ok", or "fenced" if the claim was taken over or is gone
-- Cost  O(events)
-- First write the bits: they may grow memory. The types are checked before.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "fenced": the claim is gone.

local claim = redis.call('HGET', KEYS[1], ARGV[1])
for i = 2, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
if not claim or string.match(claim, '^%d+') ~= ARGV[2] then
	return { 'fenced' }
end
for i = 3, #ARGV, 3 do
	set_bits(KEYS[tonumber(ARGV[i])], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end
redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
