-- park: moves a worker's entries to parking consumers, if the worker still owns them. The consumer's name says until
-- when its entries wait; parking.lua has the names.
--
-- KEYS  1 events
-- ARGV  1 group  2 the worker's consumer  3... for each entry: id, where to, number of attempts that it keeps. Where to
--       is "stay" (the entry stays where it is), "0", "LEVEL MS" (a level, and how long the entry waits), or
--       "paused/CAMPAIGN"
-- Reply for each entry in order: "parked", "lost", or "gone" (the entry was deleted from the stream while it was
--       pending; it stays pending, because XCLAIM would drop it silently)
-- Cost  O(entries)
-- First write XCLAIM with JUSTID. It grows memory by the name of a consumer, if it is the first entry there; reclaim
--       deletes the consumer after the last one. It runs when Redis is out of memory too: see newDrainScript.
-- Repeat answers "lost", because the worker no longer owns the entry. For "stay" it answers "parked" again.
-- Times are rounded up to an eighth of the wait. So a level has at most ten consumers at a time.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- holder returns the name of the consumer that gets an entry.
local function holder(to)
	local level, wait = string.match(to, '^(%d+) (%d+)$')
	if not level then
		return to == 'stay' and ARGV[2] or parking .. to
	end
	local grain = math.max(1, math.floor(wait / 8))
	return parking .. level .. '/' .. string.format('%.0f', math.ceil((now + wait) / grain) * grain)
end

local reply = {}
for i = 3, #ARGV, 3 do
	local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
	if not row or row[2] ~= ARGV[2] then
		reply[#reply + 1] = 'lost'
	elseif #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
		reply[#reply + 1] = 'gone'
	else
		redis.call('XCLAIM', KEYS[1], ARGV[1], holder(ARGV[i + 1]), 0, ARGV[i], 'IDLE', 0, 'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
		reply[#reply + 1] = 'parked'
	end
end
return reply
