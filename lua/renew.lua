-- renew: renews a worker's lease on those entries that it still owns.
--
-- KEYS  1 events
-- ARGV  1 group  2 the worker's consumer  3... ids
-- Reply for each id in order: "ours", "lost" (the entry is another consumer's, or acked) or "gone" (the entry was
--       deleted from the stream while it was pending)
-- Cost  O(ids)
-- First write XCLAIM with JUSTID: it sets the idle time to 0, keeps the number of attempts, and does not grow memory.
-- Repeat renews again.

local reply = {}
for i = 3, #ARGV do
	local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
	if not row or row[2] ~= ARGV[2] then
		reply[#reply + 1] = 'lost'
	elseif #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
		reply[#reply + 1] = 'gone'
	else
		redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
		reply[#reply + 1] = 'ours'
	end
end
return reply
