-- mark: sets the done bits of events that a sink has received, on a frozen shard that is being restored. It leaves
-- out events in open claims, because the owners of the claims will set their bits.
--
-- KEYS  1 meta  2 claims  3... the chunks of the sink's done bitmap
-- ARGV  1 the attempt, see mend.lua
--       2... the events as marks: number of the key, first bit, last bit, seq of bit 0
-- Reply "ok"; or "changed": another attempt restores the shard
-- Cost  O(events + claims)
-- First write the bits: they may grow memory. The script checks the types before it. It runs when Redis is out of
--       memory too.
-- Repeat changes nothing.

local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend')
local all = redis.call('HGETALL', KEYS[2])
for i = 3, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
if not m[1] or m[2] ~= ARGV[1] then
	return { 'changed' }
end
local claimed = {}
for i = 1, #all, 2 do
	for _, r in ipairs(all[i] ~= '#fence' and runs_of(string.match(all[i + 1], '^[^\n]*\n([^\n]*)\n') or '') or {}) do
		claimed[#claimed + 1] = r
	end
end
table.sort(claimed, function(a, b) return a[1] < b[1] end)
for i = 2, #ARGV, 4 do
	local base = tonumber(ARGV[i + 3])
	local next, last = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
	for _, r in ipairs(claimed) do
		local before = math.min(r[1] - base - 1, last)
		if before >= next then
			set_bits(KEYS[tonumber(ARGV[i])], next, before)
		end
		next = math.max(next, r[2] - base + 1)
	end
	if next <= last then
		set_bits(KEYS[tonumber(ARGV[i])], next, last)
	end
end
return { 'ok' }
