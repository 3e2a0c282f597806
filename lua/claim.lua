-- claim: asks for the right to push events to a sink. It is granted only if no event is done or covered by another
-- claim.
--
-- KEYS  1 claims  2 meta  3... the chunks of the sink's done bitmap
-- ARGV  1 claim id  2 owner  3 lease, ms  4 "any" to take over claims of live owners too, else "ended"  5 payload
--       6 the events "first-last,first-last"  7 "trimmed" if trimming deletes these bits: events below meta's
--       done_floor then count as done; else ""  8... the events as marks: number of the key, first bit, last bit, seq
--       of bit 0
-- Reply "granted", fence; or "no", number of overlapping claims that were not taken over because their owners are
--       live, number of done ranges, first and last of each; then for each claim that was taken over: id, fence,
--       events, payload
-- Cost  O(events + claims)
-- First write HSET: it grows memory.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat of a granted claim answers "no" and takes that claim over, with a higher fence.
-- A claim is stored as "fence until owner\nevents\npayload", where until is the end of the lease in Unix ms. The
-- field "#fence" is the last assigned fence.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])

local wanted = runs_of(ARGV[6])
local behind = tonumber(redis.call('HGET', KEYS[2], 'done_floor') or 0)
if ARGV[7] ~= 'trimmed' then
	behind = 0
end
local done = {}
for _, r in ipairs(wanted) do
	if r[1] < behind then
		done[#done + 1] = { r[1], math.min(r[2], behind - 1) }
	end
end
for i = 8, #ARGV, 4 do
	local base = tonumber(ARGV[i + 3])
	for _, bit in ipairs(bits_set(KEYS[tonumber(ARGV[i])], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))) do
		local seq = base + bit
		if seq >= behind and #done > 0 and done[#done][2] == seq - 1 then
			done[#done][2] = seq
		elseif seq >= behind then
			done[#done + 1] = { seq, seq }
		end
	end
end

local fence, held, open = 0, 0, {}
for i = 1, #all, 2 do
	if all[i] == '#fence' then
		fence = tonumber(all[i + 1])
	else
		local _, til, owner, events, payload = string.match(all[i + 1], '^(%d+) (%d+) ([^\n]*)\n([^\n]*)\n(.*)$')
		if overlap(runs_of(events), wanted) then
			if ARGV[4] == 'any' or owner == ARGV[2] or tonumber(til) <= now then
				open[#open + 1] = { all[i], events, payload }
			else
				held = held + 1
			end
		end
	end
end

local head = ' ' .. string.format('%.0f', now + ARGV[3]) .. ' ' .. ARGV[2] .. '\n'
if #done == 0 and #open == 0 and held == 0 then
	local mine = string.format('%.0f', fence + 1)
	redis.call('HSET', KEYS[1], '#fence', mine, ARGV[1], mine .. head .. ARGV[6] .. '\n' .. ARGV[5])
	return { 'granted', mine }
end
local reply = { 'no', tostring(held), tostring(#done) }
for _, r in ipairs(done) do
	reply[#reply + 1] = string.format('%.0f', r[1])
	reply[#reply + 1] = string.format('%.0f', r[2])
end
for _, o in ipairs(open) do
	fence = fence + 1
	local mine = string.format('%.0f', fence)
	redis.call('HSET', KEYS[1], '#fence', mine, o[1], mine .. head .. o[2] .. '\n' .. o[3])
	reply[#reply + 1] = o[1]
	reply[#reply + 1] = mine
	reply[#reply + 1] = o[2]
	reply[#reply + 1] = o[3]
end
return reply
