-- mark: sets the done bits of events that a sink has received, on a frozen shard that is being restored, and counts the
-- newly marked grants of each campaign. It leaves out events in open claims, because the owners of the claims will set
-- their bits.
--
-- KEYS  1 meta  2 claims  3... the campaigns of the events, then the chunks of the sink's done bitmap
-- ARGV  1 the attempt, see mend.lua  2 sink  3 number of campaigns
--       4... the events as marks: number of the key, first bit, last bit, seq of bit 0, number of the campaign's key (0
--       for none)
-- Reply "ok"; or "changed": another attempt restores the shard
-- Cost  O(events + claims)
-- First write the bits: they may grow memory. The script checks the types before it. It runs when Redis is out of
--       memory too.
-- Repeat changes nothing.

local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend', 'done_floor')
local all = redis.call('HGETALL', KEYS[2])
local campaigns = 2 + ARGV[3]
for i = 3, campaigns do
	redis.call('HLEN', KEYS[i])
end
for i = campaigns + 1, #KEYS do
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
local fresh = {}
for i = 4, #ARGV, 5 do
	local base, campaign = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
	local kept = (m[3] or 0) - base
	local next, last = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
	for _, r in ipairs(claimed) do
		local before = math.min(r[1] - base - 1, last)
		if before >= next then
			finish(KEYS[tonumber(ARGV[i])], next, before, kept, fresh, campaign)
		end
		next = math.max(next, r[2] - base + 1)
	end
	if next <= last then
		finish(KEYS[tonumber(ARGV[i])], next, last, kept, fresh, campaign)
	end
end
add_done(3, campaigns, ARGV[2], fresh)
return { 'ok' }
