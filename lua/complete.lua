-- complete: ends a claim whose push arrived: marks its events as done, counts the newly marked grants of each campaign,
-- and removes the claim.
--
-- KEYS  1 claims  2 meta  3... the campaigns of the events, then the chunks of the done bitmaps of the sink and of its
--       requeues
-- ARGV  1 claim id  2 fence  3 its events, see bits.lua  4 sink  5 number of campaigns
--       6... the events as marks: number of the key, first bit, last bit, seq of bit 0, number of the campaign's key (0
--       for none), number of the key in which the dead letters among these events are marked (0 for none)
-- Reply "ok", or "fenced" if the claim was taken over or no longer exists
-- Cost  O(events); O(events + claims) for a claim that was lost
-- First write the bits: they may grow memory. The script checks the types before it writes anything.
--       It runs when Redis is out of memory too: see newDrainScript.
-- If an event's bit in the sink's bitmap is set already, the event became a dead letter after the claim was made. This
-- push has delivered it. So the script also sets the event's bit for requeues: otherwise a requeue of the dead letter
-- would deliver it twice. The grant counts as dead until that requeue. An event below meta's done_floor counts as set,
-- because trimming has deleted its bit.
-- Repeat answers "fenced", because the claim no longer exists. A repeat for a lost claim answers "ok" again.
-- If the claim is missing, it was either ended, or Redis has lost it. "#fence" never falls, so the claim is lost if
-- "#fence" is below the claim's fence. The script completes a lost claim, because its push arrived and must not be
-- repeated. But if another claim covers some of its events, the script answers "fenced", and the owner of that claim
-- finishes them.

local claim = redis.call('HGET', KEYS[1], ARGV[1])
local last = redis.call('HGET', KEYS[1], '#fence')
local floor = tonumber(redis.call('HGET', KEYS[2], 'done_floor') or 0)
local campaigns = 2 + ARGV[5]
for i = 3, campaigns do
	redis.call('HLEN', KEYS[i])
end
for i = campaigns + 1, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
if claim and string.match(claim, '^%d+') ~= ARGV[2] then
	return { 'fenced' }
end
if not claim then
	if tonumber(last or '0') >= tonumber(ARGV[2]) then
		return { 'fenced' }
	end
	local mine, all = runs_of(ARGV[3]), redis.call('HGETALL', KEYS[1])
	for i = 1, #all, 2 do
		local events = string.match(all[i + 1], '^[^\n]*\n([^\n]*)\n')
		if all[i] ~= '#fence' and (not events or overlap(runs_of(events), mine)) then
			return { 'fenced' }
		end
	end
end
local fresh = {}
for i = 6, #ARGV, 6 do
	local sink, campaign, requeues = tonumber(ARGV[i]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
	local first, last, kept = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), floor - ARGV[i + 3]
	if requeues > 0 then
		for _, bit in ipairs(bits_set(KEYS[sink], first, last)) do
			set_bits(KEYS[requeues], bit, bit)
		end
		set_bits(KEYS[requeues], first, math.min(last, kept - 1)) -- or none
	end
	finish(KEYS[sink], first, last, kept, fresh, campaign)
end
add_done(3, campaigns, ARGV[4], fresh)
redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
