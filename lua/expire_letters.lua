-- expire_letters: removes users from old records of resolved letters. It deletes the record of a requeued letter, and of
-- a dropped whole entry. It replaces the record of a dropped grant by a shorter one at the end of the stream, which has
-- the decision, seq, campaign, packet and amount, and no user, request id or error. Without any record an audit would
-- report the grant as missing, and a replay would deliver it.
--
-- KEYS  1 resolved letters
-- ARGV  1 age from which a record is old, ms  2 id of the record after which the call starts, "" to start at the
--       first  3 how many records are read at most
-- Reply id of the last record that the call read ("" for none), number of records read, number of records deleted or
--       replaced
-- Cost  O(records read)
-- First write XDEL: it frees more memory than the shorter records need. It runs when Redis is out of memory too: see
--       newDrainScript.
-- Repeat does the same with the next records. A shorter record has the field erased, and stays.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local rows = redis.call('XRANGE', KEYS[1], from, string.format('%.0f', math.max(0, now - ARGV[1])), 'COUNT', ARGV[3])

-- shorter returns the record without the user; nil for a whole entry, which is no grant.
local function shorter(fields)
	local has, entry = {}, nil
	for i = 1, #fields, 2 do
		if string.sub(fields[i], 1, 6) == 'entry.' then
			entry = entry or i
		else
			has[fields[i]] = fields[i + 1]
		end
	end
	if (has.seq or '0') == '0' then
		return nil
	end
	local record = { 'letter', has.letter, 'decision', has.decision, 'by', has.by or '', 'why', has.why or '', 'resolved',
		has.resolved or '', 'erased', string.format('%.0f', now), 'seq', has.seq }
	if has.grant then
		record[#record + 1] = 'grant'
		record[#record + 1] = string.match(has.grant, '^%S+ %S+') or ''
	end
	if entry then -- its first line has the campaign, and no user
		record[#record + 1] = fields[entry]
		record[#record + 1] = string.match(fields[entry + 1], '^[^\n]*')
	end
	return record
end

local old, kept = {}, {}
for _, row in ipairs(rows) do
	local decision = row[2][3] == 'decision' and row[2][4] -- the format of resolve_letter
	if decision == 'requeued' then
		old[#old + 1] = row[1]
	elseif decision == 'dropped' and row[2][11] ~= 'erased' then
		old[#old + 1] = row[1]
		kept[#kept + 1] = shorter(row[2])
	end
end
if #old > 0 then
	redis.call('XDEL', KEYS[1], unpack(old))
	for _, record in ipairs(kept) do
		redis.call('XADD', KEYS[1], '*', unpack(record))
	end
end
return { #rows > 0 and rows[#rows][1] or '', tostring(#rows), tostring(#old) }
