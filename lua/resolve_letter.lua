-- resolve_letter: ends a dead letter by an operator's decision: it moves the letter with all its fields to the
-- resolved letters. A requeued grant no longer counts as dead but as done; a dropped one still counts as dead.
--
-- KEYS  1 dead letters  2 resolved letters  3 campaign of the grant that was requeued, else no such key
-- ARGV  1 id of the letter  2 decision, "requeued" or "dropped"  3 who decided  4 why  5 sink
-- Reply "resolved", or "gone" if there is no such letter
-- Cost  O(fields of the letter)
-- First write XADD to the resolved letters: it grows memory, but also runs when Redis is full. The letter's own fields
--       come after those of the decision.
-- Repeat answers "gone".

redis.call('XLEN', KEYS[2])
if KEYS[3] then
	redis.call('HLEN', KEYS[3])
end
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then
	return { 'gone' }
end
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local record = { 'letter', ARGV[1], 'decision', ARGV[2], 'by', ARGV[3], 'why', ARGV[4], 'resolved', now }
for _, field in ipairs(letter[2]) do
	record[#record + 1] = field
end
redis.call('XADD', KEYS[2], '*', unpack(record))
redis.call('XDEL', KEYS[1], ARGV[1])
if KEYS[3] then
	add_finished(KEYS[3], 'dead:' .. ARGV[5], -1)
	add_finished(KEYS[3], 'done:' .. ARGV[5], 1)
end
return { 'resolved' }
