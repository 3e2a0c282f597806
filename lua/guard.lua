-- guard: runs before each script that belongs to a shard. It refuses the call in these cases: the shard is frozen or
-- missing, it was opened for a different server, or it was opened again after the caller read its batch.
--
-- The line before it sets OPENED, the token of the server for which the script was loaded. Three arguments are for
-- guard, which removes them: the last of KEYS is meta; the last two of ARGV are the epoch of the caller's batch, or
-- "", and the highest seq that the caller has seen. If the shard's seq is lower than that, Redis went back in time.
-- Then guard freezes the shard and stores the seq in meta as `seen`. In all other cases guard changes nothing.

do
	local m = redis.call('HMGET', KEYS[#KEYS], 'seq', 'epoch', 'opened', 'frozen', 'seen')
	local seen = tonumber(ARGV[#ARGV])
	if not m[1] or not m[2] then
		return redis.error_reply('HBFROZEN Redis has lost the shard, or nobody founded it')
	end
	if seen > tonumber(m[1]) then
		if not m[4] then
			local clock = redis.call('TIME')
			redis.call('HSET', KEYS[#KEYS], 'frozen', string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)),
				'seen', ARGV[#ARGV])
		elseif seen > tonumber(m[5] or 0) then
			redis.call('HSET', KEYS[#KEYS], 'seen', ARGV[#ARGV])
		end
		return redis.error_reply('HBFROZEN the shard has come to event ' .. m[1] .. ', and event ' .. ARGV[#ARGV] .. ' was seen')
	end
	if m[4] then
		return redis.error_reply('HBFROZEN the shard waits until what Redis may have lost is known')
	end
	if m[3] ~= OPENED then
		return redis.error_reply('HBOPENED the shard was opened for another server')
	end
	if ARGV[#ARGV - 1] ~= '' and ARGV[#ARGV - 1] ~= m[2] then
		return redis.error_reply('HBEPOCH the shard was opened again, it is in epoch ' .. m[2] .. ' now')
	end
	table.remove(KEYS)
	table.remove(ARGV)
	table.remove(ARGV)
end
