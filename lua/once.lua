-- once: the state of one message id of package dedup: absent (free), claimed by a token until a time, or done.
--
-- KEYS  1 the message id's key
-- ARGV  1 what to do: claim, retake, complete, release  2 token  3 lease, ms  4 retention, ms
-- Reply claim: "mine", "done", "in_progress" (a live claim), "in_doubt" (the lease of a claim is over: it may have been
--       pushed)
--       retake, for an id in doubt whose push is known not to have happened: "mine", or the state as for claim
--       complete, release: "ok", or "lost" if the token is not the claim's
-- Cost  O(1)
-- First write SET: it grows memory, but also runs when Redis is full.
-- Repeat of claim or retake by the same token within the lease answers "mine". A repeat of complete answers "ok". A
--       repeat of release answers "lost".
-- A claim is kept for the retention, not only for the lease. So an id whose lease has ended is in doubt, not free.
-- The value is "claimed token until" or "done token".

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local has = redis.call('GET', KEYS[1])
local state, token, til = 'new', nil, nil
if has then
	state, token, til = string.match(has, '^(%a+) (%S+) ?(%d*)$')
	if not (state == 'done' or state == 'claimed' and til ~= '') then
		return redis.error_reply('HBFOREIGN the key holds something else, nothing was changed')
	end
end
local mine = token == ARGV[2]
if ARGV[1] == 'complete' then
	if state == 'done' and mine then
		return { 'ok' }
	elseif state ~= 'claimed' or not mine then
		return { 'lost' }
	end
	redis.call('SET', KEYS[1], 'done ' .. ARGV[2], 'PX', ARGV[4])
	return { 'ok' }
elseif ARGV[1] == 'release' then
	if state ~= 'claimed' or not mine then
		return { 'lost' }
	end
	redis.call('DEL', KEYS[1])
	return { 'ok' }
end
local over = state == 'claimed' and tonumber(til) <= now
if state == 'done' then
	return { 'done' }
elseif state == 'claimed' and not over and not mine then
	return { 'in_progress' }
elseif over and ARGV[1] ~= 'retake' then
	return { 'in_doubt' }
end
redis.call('SET', KEYS[1], 'claimed ' .. ARGV[2] .. ' ' .. string.format('%.0f', now + ARGV[3]), 'PX', ARGV[4])
return { 'mine' }
