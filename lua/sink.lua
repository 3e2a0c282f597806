-- sink: pauses a sink for all workers, lets it go on, or bounds its rate.
--
-- KEYS  1 sink
-- ARGV  1 what to do: pause, resume, limit  2 who  3 why  4 grants a second, of limit: 0 for no bound, "" for the worker's own
-- Reply "changed", or "same" if the sink stood so before; then the hash, field by field
-- Cost  O(1)
-- First write HSET: it grows memory, by one small hash a sink.
--       It runs when Redis is out of memory too (see newDrainScript): a pause may be what mends it.
-- Repeat answers "same": the first one's name and reason stay.

local field, wanted, prefix = 'paused', ARGV[1] == 'pause' and '1' or '0', ''
if ARGV[1] == 'limit' then
	field, wanted, prefix = 'rate', ARGV[4], 'limit_'
end
local has = redis.call('HGET', KEYS[1], field) or (field == 'paused' and '0' or '')
local changed = 'same'
if has ~= wanted then
	local clock = redis.call('TIME')
	redis.call('HSET', KEYS[1], field, wanted, prefix .. 'by', ARGV[2], prefix .. 'why', ARGV[3], prefix .. 'at',
		string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)))
	changed = 'changed'
end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, changed)
return reply
