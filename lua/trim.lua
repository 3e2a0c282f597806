-- trim: deletes from the stream what every group has finished and the retention no longer keeps, and writes the seq up
-- to which every declared group is finished into meta. The done bits of whole chunks behind the stream may be deleted then:
-- meta's field bits tells which, before they are, so that what they said is known for ever.
--
-- KEYS  1 events  2 meta
-- ARGV  1 retention, ms  2 how many events are kept at most  3 how many entries are deleted at most
--       4 how many events' done bits are in one chunk  5... the groups that must exist
--       Whole nodes of the stream are deleted (XTRIM ~), so up to 100 entries more are kept.
-- Reply seq, finished, seq of the first entry kept (0 for none), entries deleted, first event whose done bits are still
--       needed, number of declared groups that are missing, these; then for every group that exists: name, finished seq, ms since its oldest unfinished entry (0 for none)
-- Cost  O(groups + entries deleted), and some 40 looks into the stream while it has more events than are kept
-- First write HSET finished: it may grow memory, by a number at most. Nothing is deleted while a declared group is missing.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat deletes the next entries.

local last = redis.call('HGET', KEYS[2], 'seq')
if not last then
	return redis.error_reply('HBNOTREADY this shard was never initialised')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local declared, missing = {}, {}
for i = 5, #ARGV do
	declared[ARGV[i]] = true
end

local function before(a, b) -- a < b, of stream ids
	local am, as = string.match(a, '^(%d+)-(%d+)$')
	local bm, bs = string.match(b, '^(%d+)-(%d+)$')
	am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
	return am < bm or (am == bm and as < bs)
end

-- the seq of the first entry from the id on that has one; entries that can't be read are passed over
local function seq_from(id)
	local count = 1
	while true do
		local rows = redis.call('XRANGE', KEYS[1], id, '+', 'COUNT', count)
		for _, row in ipairs(rows) do
			for i = 1, #row[2], 2 do
				local q = row[2][i] == 'q' and string.match(row[2][i + 1], '^[1-9]%d*$')
				if q and tonumber(q) <= tonumber(last) then
					return tonumber(q)
				end
			end
		end
		if #rows < count then
			return nil
		end
		id = '(' .. rows[#rows][1]
		count = math.min(count * 8, 512)
	end
end

local exists = redis.call('EXISTS', KEYS[1]) == 1
local floor, finished, seen, rows = nil, tonumber(last), {}, {}
for _, info in ipairs(exists and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
	local g = {}
	for i = 1, #info, 2 do
		g[info[i]] = info[i + 1]
	end
	seen[g.name] = true
	local id, age = g['last-delivered-id'], 0
	local seq
	if g.pending > 0 then
		id = redis.call('XPENDING', KEYS[1], g.name)[2]
		seq = seq_from(id)
	else
		seq = seq_from('(' .. id)
	end
	local mine = seq and seq - 1 or tonumber(last)
	if mine < tonumber(last) then
		local row = redis.call('XRANGE', KEYS[1], g.pending > 0 and id or '(' .. id, '+', 'COUNT', 1)[1]
		age = row and math.max(0, now - tonumber(string.match(row[1], '^%d+'))) or 0
	end
	if not floor or before(id, floor) then
		floor = id
	end
	if declared[g.name] then
		finished = math.min(finished, mine)
	end
	rows[#rows + 1] = g.name
	rows[#rows + 1] = string.format('%.0f', mine)
	rows[#rows + 1] = string.format('%.0f', age)
end
for i = 5, #ARGV do
	if not seen[ARGV[i]] then
		missing[#missing + 1] = ARGV[i]
	end
end

local deleted, first = 0, 0
local bits = tonumber(redis.call('HGET', KEYS[2], 'bits') or 0)
if #missing == 0 and exists then
	redis.call('HSET', KEYS[2], 'finished', string.format('%.0f', finished))
	local cut = string.format('%.0f-0', math.max(0, now - tonumber(ARGV[1])))
	local oldest = seq_from('-')
	local wanted = tonumber(last) - tonumber(ARGV[2]) + 1 -- the first event that the bound keeps
	if oldest and oldest < wanted then -- look by halves for the last ms from which on no event before it is wanted
		local low = tonumber(string.match(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][1], '^%d+'))
		local high = 1 + string.match(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][1], '^%d+')
		while high - low > 1 do
			local ms = math.floor((low + high) / 2)
			if (seq_from(string.format('%.0f-0', ms)) or tonumber(last) + 1) <= wanted then
				low = ms
			else
				high = ms
			end
		end
		local at = string.format('%.0f-0', low)
		if before(cut, at) then
			cut = at
		end
	end
	if floor and before(floor, cut) then
		cut = floor
	end
	deleted = redis.call('XTRIM', KEYS[1], 'MINID', '~', cut, 'LIMIT', ARGV[3])
	first = seq_from('-') or 0
	local behind = first > 0 and first or math.min(finished, tonumber(last)) + 1
	behind = behind - behind % tonumber(ARGV[4])
	if behind > bits then
		bits = behind
		redis.call('HSET', KEYS[2], 'bits', string.format('%.0f', bits))
	end
else
	finished = tonumber(redis.call('HGET', KEYS[2], 'finished') or 0)
end

local reply = { last, string.format('%.0f', finished), string.format('%.0f', first), tostring(deleted),
	string.format('%.0f', bits), tostring(#missing) }
for _, name in ipairs(missing) do
	reply[#reply + 1] = name
end
for _, v in ipairs(rows) do
	reply[#reply + 1] = v
end
return reply
