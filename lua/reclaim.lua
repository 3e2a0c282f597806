-- reclaim: assigns pending entries to a worker: first entries of workers that have not renewed their lease, then parked
-- entries whose time has come, the earliest first, then parked entries of campaigns that are no longer paused. While the
-- sink is paused, it assigns none. One worker at a time has the lead, and only that worker gets entries. A lead ends if
-- its worker does not call for a while.
--
-- KEYS  1 events  2 sink  3 lead  4 the sink's campaigns
-- ARGV  1 group  2 the worker's consumer  3 how many entries at most  4 lease, ms  5 how long the caller keeps the
--       lead, ms  6 the longest time that an entry waits, ms: if a time is further ahead, the clock was set back, and the
--       time has come
-- Reply ms until another worker's lead ends, 0 if the caller has the lead; number of fields and values of the sink's
--       hash, then these; number of ids whose entry was deleted from the stream, then these ids; then for each entry
--       taken: id, attempt, number of its fields and values, then these
-- Cost  O(consumers + entries of workers + entries taken). Entries that wait cost nothing: they are not read.
-- First write XREADGROUP of the consumer's pending entries after the last possible id, which returns none. It resets
--       the idle time of the consumer, also if there are no new entries: Redis 7.0 does not do that for a blocking
--       read. SET of the lead grows memory by one small key. It runs when Redis is out of memory too: see
--       newDrainScript. XCLAIM does not grow memory. One call takes at most 1,000 entries of each consumer, because
--       Lua's unpack takes fewer than 8,000 values.
-- Repeat takes nothing: the worker has the taken entries, and its lease has begun.
-- The script does not use XAUTOCLAIM, which would also take entries that still wait.

local reply = redis.call('HGETALL', KEYS[2])
table.insert(reply, 1, tostring(#reply))
local leader = redis.call('GET', KEYS[3])
redis.call('HLEN', KEYS[4])
if redis.call('EXISTS', KEYS[1]) == 0 then
	return redis.error_reply('NOGROUP there is no stream of events')
end
redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', '1', 'STREAMS', KEYS[1], '18446744073709551614-0')
local gone, entries, room = {}, {}, tonumber(ARGV[3])
if leader and leader ~= ARGV[2] then
	room = 0
	table.insert(reply, 1, string.format('%.0f', math.max(1, redis.call('PTTL', KEYS[3]))))
else
	table.insert(reply, 1, '0')
	redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[5])
end
if redis.call('HGET', KEYS[2], 'paused') == '1' then
	room = 0
end

-- take assigns the rows of XPENDING to the worker, if they have been idle for so long.
local function take(rows, idle)
	if #rows == 0 then
		return
	end
	local ids, attempt = {}, {}
	for i, row in ipairs(rows) do
		ids[i], attempt[row[1]] = row[1], row[4] + 1
	end
	for _, entry in ipairs(redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], idle, unpack(ids))) do
		if entry and entry[2] then
			entries[#entries + 1] = entry[1]
			entries[#entries + 1] = tostring(attempt[entry[1]])
			entries[#entries + 1] = tostring(#entry[2])
			for _, v in ipairs(entry[2]) do
				entries[#entries + 1] = v
			end
			attempt[entry[1]] = nil
			room = room - 1
		end
	end
	for _, id in ipairs(ids) do
		if attempt[id] then
			gone[#gone + 1] = id
		end
	end
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local parked = {}
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
	local c = {}
	for i = 1, #info, 2 do
		c[info[i]] = info[i + 1]
	end
	local wait = string.match(c.name, '^' .. parking .. '(.*)$')
	local due = wait and (wait == '0' and 0 or tonumber(string.match(wait, '^%d+/(%d+)$') or ''))
	local campaign = wait and string.match(wait, '^paused/(.+)$')
	if due or campaign then
		if c.pending == 0 then
			redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c.name)
		elseif room > 0 and due and (due <= now or due > now + ARGV[6]) then
			parked[#parked + 1] = { due, c.name }
		elseif room > 0 and campaign and redis.call('HGET', KEYS[4], campaign .. ':paused') ~= '1' then
			parked[#parked + 1] = { math.huge, c.name }
		end
	elseif c.pending > 0 and room > 0 then
		take(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[4], '-', '+', math.min(room, 1000), c.name), ARGV[4])
	end
end
table.sort(parked, function(a, b)
	if a[1] ~= b[1] then
		return a[1] < b[1]
	end
	return a[2] < b[2]
end)
for _, p in ipairs(parked) do
	if room > 0 then
		take(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', math.min(room, 1000), p[2]), 0)
	end
end

reply[#reply + 1] = tostring(#gone)
for _, id in ipairs(gone) do
	reply[#reply + 1] = id
end
for _, v in ipairs(entries) do
	reply[#reply + 1] = v
end
return reply
