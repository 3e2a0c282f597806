-- remove_idle_consumers: removes the consumers of workers that no longer exist: those that have nothing pending and
-- are idle for long.
--
-- KEYS  1 events
-- ARGV  1 group  2 the consumer that calls  3 idle time from which a consumer counts as dead, ms
-- Reply the names of the removed consumers
-- Cost  O(consumers)
-- First write XGROUP DELCONSUMER; it frees memory. No pending entry is lost, because the check and the deletion are
--       atomic.
-- Repeat removes nothing.

if redis.call('EXISTS', KEYS[1]) == 0 then
	return redis.error_reply('NOGROUP there is no stream of events')
end
local removed = {}
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
	local c = {}
	for i = 1, #info, 2 do
		c[info[i]] = info[i + 1]
	end
	if c.pending == 0 and c.idle >= tonumber(ARGV[3]) and c.name ~= ARGV[2] then
		redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c.name)
		removed[#removed + 1] = c.name
	end
end
return removed
