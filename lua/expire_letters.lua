-- expire_letters: deletes old records of requeued letters from the resolved letters. Records of dropped letters stay.
-- Without them an audit would report the grant as missing, and a replay would deliver it.
--
-- KEYS  1 resolved letters
-- ARGV  1 age from which a record is old, ms  2 id of the record after which the call starts, "" to start at the
--       first  3 how many records are read at most
-- Reply id of the last record that the call read ("" for none), number of records read, number of records deleted
-- Cost  O(records read)
-- First write XDEL: it frees memory. It runs when Redis is out of memory too: see newDrainScript.
-- Repeat deletes the next records.

local clock = redis.call('TIME')
local cut = clock[1] * 1000 + math.floor(clock[2] / 1000) - ARGV[1]
local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local rows = redis.call('XRANGE', KEYS[1], from, string.format('%.0f', math.max(0, cut)), 'COUNT', ARGV[3])
local old = {}
for _, row in ipairs(rows) do
	if row[2][3] == 'decision' and row[2][4] == 'requeued' then -- the format of resolve_letter
		old[#old + 1] = row[1]
	end
end
if #old > 0 then
	redis.call('XDEL', KEYS[1], unpack(old))
end
return { #rows > 0 and rows[#rows][1] or '', tostring(#rows), tostring(#old) }
