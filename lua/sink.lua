-- sink: pauses a sink for all workers, or lets it go on.
--
-- KEYS  1 sink
-- ARGV  1 what to do: pause, resume  2 who  3 why
-- Reply "changed", or "same" if the sink was paused, or not paused, before; then the hash, field by field
-- Cost  O(1)
-- First write HSET: it grows memory, by one small hash a sink.
--       It runs when Redis is out of memory too (see newDrainScript): a pause may be what mends it.
-- Repeat answers "same": the first one's name and reason stay.

local wanted = ARGV[1] == 'pause' and '1' or '0'
local changed = 'same'
if (redis.call('HGET', KEYS[1], 'paused') or '0') ~= wanted then
	local clock = redis.call('TIME')
	redis.call('HSET', KEYS[1], 'paused', wanted, 'by', ARGV[2], 'why', ARGV[3], 'at',
		string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)))
	changed = 'changed'
end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, changed)
return reply
