-- guard: runs before each script that belongs to a shard. It refuses the call in these cases: the shard is frozen or
-- missing, it was opened for a different server, or it was opened again after the caller read its batch.
--
-- The line before it sets OPENED, the token of the server for which the script was loaded. Three arguments are for
-- guard, which removes them: the last of KEYS is meta; the last three of ARGV are the epoch of the caller's batch, or
-- "", and the latest event that the caller has seen, its epoch and its seq. If that event is later than the shard's
-- last one, Redis went back in time: it has a later epoch, or a higher seq of the same epoch. A higher seq of an
-- earlier epoch says nothing. Then guard freezes the shard and stores the event in meta as `seen`, "epoch seq". In all
-- other cases guard changes nothing.

do
	local m = redis.call('HMGET', KEYS[#KEYS], 'seq', 'epoch', 'opened', 'frozen', 'seen')
	local seen_epoch, seen = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
	if not m[1] or not m[2] then
		return redis.error_reply('HBFROZEN Redis has lost the shard, or nobody founded it')
	end
	local epoch = tonumber(m[2])
	if seen_epoch > epoch or seen_epoch == epoch and seen > tonumber(m[1]) then
		local text = ARGV[#ARGV - 1] .. ' ' .. ARGV[#ARGV]
		if not m[4] then
			local clock = redis.call('TIME')
			redis.call('HSET', KEYS[#KEYS], 'frozen', string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)),
				'seen', text)
		else
			local was_epoch, was = string.match(m[5] or '', '^(%d+) (%d+)$')
			was_epoch, was = tonumber(was_epoch or 0), tonumber(was or 0)
			if seen_epoch > was_epoch or seen_epoch == was_epoch and seen > was then
				redis.call('HSET', KEYS[#KEYS], 'seen', text)
			end
		end
		return redis.error_reply('HBFROZEN the shard has come to event ' .. m[1] .. ' of epoch ' .. m[2] .. ', and event ' ..
			ARGV[#ARGV] .. ' of epoch ' .. ARGV[#ARGV - 1] .. ' was seen')
	end
	if m[4] then
		return redis.error_reply('HBFROZEN the shard waits until what Redis may have lost is known')
	end
	if m[3] ~= OPENED then
		return redis.error_reply('HBOPENED the shard was opened for another server')
	end
	if ARGV[#ARGV - 2] ~= '' and ARGV[#ARGV - 2] ~= m[2] then
		return redis.error_reply('HBEPOCH the shard was opened again, it is in epoch ' .. m[2] .. ' now')
	end
	table.remove(KEYS)
	for _ = 1, 3 do
		table.remove(ARGV)
	end
end
