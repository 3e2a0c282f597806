-- park: hands a worker's entries to the parking consumer of a level, if they are still its own. From then on their idle
-- time is the clock of their backoff.
--
-- KEYS  1 events
-- ARGV  1 group  2 the worker's consumer  3... for each entry: id, level, attempts to leave on it;
--       level "stay" leaves it with the worker
-- Reply for each entry in order: "parked", "lost", or "gone" (its entry was deleted from the stream while it was pending;
--       it stays pending, for XCLAIM would drop it without a word)
-- Cost  O(entries)
-- First write XCLAIM with JUSTID; it grows nothing but the first time a level is used.
-- Repeat answers "lost": it is no longer the worker's own.

local reply = {}
for i = 3, #ARGV, 3 do
	local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
	if not row or row[2] ~= ARGV[2] then
		reply[#reply + 1] = 'lost'
	elseif #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
		reply[#reply + 1] = 'gone'
	else
		redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[i + 1] == 'stay' and ARGV[2] or parking .. ARGV[i + 1], 0, ARGV[i], 'IDLE', 0,
			'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
		reply[#reply + 1] = 'parked'
	end
end
return reply
