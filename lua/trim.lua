-- trim: deletes entries that every group has finished, if they are older than the retention or exceed the bound on
-- events. It stores three numbers in meta: finished, the last seq less the events that the slowest declared group has
-- not finished; settled, the event up to which all declared groups have finished all events; thinned, the event up to
-- which the stream lacks entries after an unfinished one. Seqs that openings have skipped are no events: they are neither
-- unfinished, nor do they count for the bound.
--
-- KEYS  1 events  2 meta  3... the done bitmaps of the declared groups, group by group
-- ARGV  1 retention, ms  2 how many events are kept at most  3 how many entries are deleted at most from the front
--       4 how many entries after an unfinished entry are examined  5 the entry after which that begins, "" for the
--       front  6 number of events of a bitmap  7 number of declared groups; for each: name, seq of bit 0 of its first
--       bitmap (every event before it is done), number of its bitmaps, how many of its events count as finished besides.
--       The other arguments are groups that must exist, too. Whole nodes of the stream are deleted from the front
--       (XTRIM ~), so up to 100 entries more are kept.
-- Reply seq, finished, seq of the first entry kept (0 for none), entries deleted, the last entry that was examined
--       after an unfinished one ("" if all were), number of groups that must exist and are missing, then these,
--       number of bitmaps, then the number of done events in each; then for every group that exists: name, the event
--       up to which everything is finished, the event up to which everything was delivered, ms since its oldest
--       unfinished entry (0 for none)
-- Cost  O(groups + bitmaps + skipped ranges + entries deleted or examined), about 40 reads of the stream if it has more
--       events than the bound, and for each group at most 10 times ARGV 4 pending entries. A person may have deleted
--       pending entries from the stream. If a group has more of these rows, the examined entries after the last row read
--       are kept.
-- First write HSET finished and settled: it may grow memory, by three numbers at most. While such a group is
--       missing, the script writes and deletes nothing. It runs when Redis is out of memory too: see newDrainScript.
-- Repeat deletes the next entries.

local last, skips = unpack(redis.call('HMGET', KEYS[2], 'seq', 'skipped'))
if not last then
	return redis.error_reply('HBNOTREADY this shard was never initialised')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local skipped = {}
for from, to in string.gmatch(skips or '', '(%d+)%-(%d+)') do
	skipped[#skipped + 1] = { tonumber(from), tonumber(to) }
end

-- Count the events that each declared group has finished. A group sets the bits of a skipped range together, when it
-- comes to the entry of the opening. Until then the range's seqs are added.
local declared, missing, counts = {}, {}, {}
for i = 8, 7 + 4 * tonumber(ARGV[7]), 4 do
	local first, bitmaps, events = tonumber(ARGV[i + 1]), #counts, tonumber(ARGV[6])
	local done = math.max(0, first - 1) + tonumber(ARGV[i + 3])
	for _ = 1, tonumber(ARGV[i + 2]) do
		counts[#counts + 1] = redis.call('BITCOUNT', KEYS[3 + #counts])
		done = done + counts[#counts]
	end
	for r = #skipped, 1, -1 do
		local to = skipped[r][2]
		if to < first then
			break
		end
		local at = math.floor((to - first) / events)
		if at < tonumber(ARGV[i + 2]) and redis.call('GETBIT', KEYS[3 + bitmaps + at], to % events) == 0 then
			done = done + to - math.max(first, skipped[r][1]) + 1
		end
	end
	declared[ARGV[i]] = math.min(done, tonumber(last))
end

local function before(a, b) -- reports whether stream id a is below b
	local am, as = string.match(a, '^(%d+)-(%d+)$')
	local bm, bs = string.match(b, '^(%d+)-(%d+)$')
	am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
	return am < bm or (am == bm and as < bs)
end

-- seq_from returns the seq of the first readable entry at or after an id.
local function seq_from(id)
	local count = 1
	while true do
		local rows = redis.call('XRANGE', KEYS[1], id, '+', 'COUNT', count)
		for _, row in ipairs(rows) do
			local q = string.match(row[2][2] or '', '^%a+ %S+ ([1-9]%d*) ')
			if q and tonumber(q) <= tonumber(last) then
				return tonumber(q)
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
local floor, reached, finished, settled, seen, rows = nil, nil, tonumber(last), tonumber(last), {}, {}
for _, info in ipairs(exists and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
	local g = {}
	for i = 1, #info, 2 do
		g[info[i]] = info[i + 1]
	end
	seen[g.name] = true
	local id, age = g['last-delivered-id'], 0
	if not reached or before(id, reached) then
		reached = id
	end
	local seq = seq_from('(' .. id)
	local delivered = seq and seq - 1 or tonumber(last)
	if g.pending > 0 then
		id = redis.call('XPENDING', KEYS[1], g.name)[2]
		seq = seq_from(id)
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
		finished = math.min(finished, declared[g.name])
		settled = math.min(settled, mine)
	end
	rows[#rows + 1] = g.name
	rows[#rows + 1] = string.format('%.0f', mine)
	rows[#rows + 1] = string.format('%.0f', delivered)
	rows[#rows + 1] = string.format('%.0f', age)
end
local others = 8 + 4 * tonumber(ARGV[7])
for i = 8, #ARGV do
	if (i >= others or (i - 8) % 4 == 0) and not seen[ARGV[i]] then
		missing[#missing + 1] = ARGV[i]
	end
end

local deleted, first, looked = 0, 0, ''
if #missing == 0 and exists then
	redis.call('HSET', KEYS[2], 'finished', string.format('%.0f', finished), 'settled', string.format('%.0f', settled))
	local cut = string.format('%.0f-0', math.max(0, now - tonumber(ARGV[1])))
	local oldest = seq_from('-')
	local wanted = tonumber(last) - tonumber(ARGV[2]) + 1 -- the first event to keep under the bound
	for i = #skipped, 1, -1 do
		if skipped[i][2] < wanted then
			break
		end
		wanted = wanted - (skipped[i][2] - skipped[i][1] + 1)
	end
	if oldest and oldest < wanted then -- bisection: the last ms before which all events exceed the bound
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
	local held = floor and before(floor, cut)
	deleted = redis.call('XTRIM', KEYS[1], 'MINID', '~', held and floor or cut, 'LIMIT', ARGV[3])
	if held and before(floor, reached) then -- after an unfinished entry: delete finished entries one by one
		local from = ARGV[5] ~= '' and before(floor, ARGV[5]) and '(' .. ARGV[5] or floor
		local behind = redis.call('XRANGE', KEYS[1], from, before(reached, cut) and reached or '(' .. cut, 'COUNT', ARGV[4])
		local pending, done = {}, {}
		local known = #behind -- of the first entries behind it is known whether they are pending
		for name in pairs(#behind > 0 and seen or {}) do
			local start, pages, page = behind[1][1], 0, nil
			repeat -- in pages: the group may also have pending entries that a person has deleted from the stream
				page, pages = redis.call('XPENDING', KEYS[1], name, start, behind[#behind][1], ARGV[4]), pages + 1
				for _, row in ipairs(page) do
					pending[row[1]] = true
					start = '(' .. row[1]
				end
			until #page < tonumber(ARGV[4]) or pages == 10
			while #page == tonumber(ARGV[4]) and before(page[#page][1], behind[known][1]) do
				known = known - 1
			end
		end
		for i = 1, known do
			local row = behind[i]
			if not pending[row[1]] then
				done[#done + 1] = row[1]
			end
		end
		if #done > 0 then
			deleted = deleted + redis.call('XDEL', KEYS[1], unpack(done))
			local upto = (seq_from('(' .. done[#done]) or tonumber(last) + 1) - 1
			if upto > tonumber(redis.call('HGET', KEYS[2], 'thinned') or 0) then
				redis.call('HSET', KEYS[2], 'thinned', string.format('%.0f', upto))
			end
		end
		if #behind == tonumber(ARGV[4]) then
			looked = behind[#behind][1]
		end
	end
	first = seq_from('-') or 0
else
	finished = tonumber(redis.call('HGET', KEYS[2], 'finished') or 0)
end

local reply = { last, string.format('%.0f', finished), string.format('%.0f', first), tostring(deleted), looked,
	tostring(#missing) }
for _, name in ipairs(missing) do
	reply[#reply + 1] = name
end
reply[#reply + 1] = tostring(#counts)
for _, n in ipairs(counts) do
	reply[#reply + 1] = string.format('%.0f', n)
end
for _, v in ipairs(rows) do
	reply[#reply + 1] = v
end
return reply
