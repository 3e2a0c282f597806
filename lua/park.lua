-- park: moves a worker's entries to the parking consumer of a level, if the worker still owns them. After that, their
-- idle time measures the backoff.
--
-- KEYS  1 events
-- ARGV  1 group  2 the worker's consumer  3... for each entry: id, level, number of attempts that it keeps; level
--       "stay" does not move the entry
-- Reply for each entry in order: "parked", "lost", or "gone" (the entry was deleted from the stream while it was
--       pending; it stays pending, because XCLAIM would drop it silently)
-- Cost  O(entries)
-- First write XCLAIM with JUSTID; it grows memory only when a level is used for the first time.
-- Repeat answers "lost", because the worker no longer owns the entry. For level "stay" it answers "parked" again.

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
