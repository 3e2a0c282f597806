-- dead_letter: writes a dead letter, marks its event as done, counts the grant as dead and acks its entry if no other
-- event of it is unfinished.
--
-- KEYS  1 events  2 dead letters  3 the chunk of the sink's done bitmap  4 campaign (for a whole entry: neither)
-- ARGV  1 group  2 entry id  3 "1" to ack the entry  4 bit of the event in KEYS[3]
--       5 class  6 reason  7 attempts  8 the grant's line, or "" for a whole entry  9 its seq, or 0
--       10 the consumer that has the entry
-- Reply "written"; "already" if the event is done; "lost" if the entry is not pending for the consumer
-- Cost  O(1)
-- First write XADD: it grows memory. The letter has version 2 (field v). The letter of a grant also has a field
--       entry.<version>: an entry with only this grant, and with the campaign, currency, epoch and time of the
--       original entry. The letter of a whole entry has the entry's fields as entry.<field>. If there are more than
--       1,000, they become one JSON array, entry_json, because Lua's unpack takes fewer than 8,000 values.
-- Repeat writes nothing; it acks the entry if it is not acked yet.

redis.call('XLEN', KEYS[2])
local written = false
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
local done = KEYS[3] and redis.call('GETBIT', KEYS[3], ARGV[4]) == 1
if KEYS[4] then
	redis.call('HLEN', KEYS[4])
end
if #pending == 0 or pending[1][2] ~= ARGV[10] then
	return { 'lost' }
end
if not done then
	local clock = redis.call('TIME')
	local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
	local letter = { 'v', '2', 'group', ARGV[1], 'entry', ARGV[2], 'seq', ARGV[9], 'grant', ARGV[8], 'class', ARGV[5],
		'reason', ARGV[6], 'attempts', ARGV[7], 'first', string.match(ARGV[2], '^%d+'), 'last', now }
	local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
	local fields = entry and entry[2] or {}
	local kind, rest = string.match(fields[2] or '', '^(%S+ %S+) %S+ (%S+ %S+[^\n]*)\n')
	if KEYS[3] and rest then
		fields = { fields[1], kind .. ' ' .. ARGV[9] .. ' ' .. rest .. '\n' .. ARGV[8] }
	end
	if #fields > 2000 then
		fields = {}
		letter[#letter + 1] = 'entry_json'
		letter[#letter + 1] = cjson.encode(entry[2])
	end
	for i = 1, #fields do
		letter[#letter + 1] = (i % 2 == 1) and 'entry.' .. fields[i] or fields[i]
	end
	redis.call('XADD', KEYS[2], '*', unpack(letter))
	if KEYS[3] then
		redis.call('SETBIT', KEYS[3], ARGV[4], 1)
		add_finished(KEYS[4], 'dead:' .. ARGV[1], 1)
	end
	written = true
end
if ARGV[3] == '1' then
	redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
end
return { written and 'written' or 'already' }
