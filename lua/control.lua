-- control: stores a person's decision about a campaign or a sink. sink and state include it.

-- decide sets a field of a hash. Beside it, with a prefix, it stores who decided it, why and when. A decision that
-- changes nothing leaves the name, reason and time of the first one. Each decision has a higher rev than the one
-- before: ms since 1970, if the clock was not set back. waiting is the hash of the decisions that the ledger does not
-- have yet. decide reports whether the field has changed.
local function decide(hash, waiting, name, field, prefix, default, value, by, why)
	local clock = redis.call('TIME')
	local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
	local m = redis.call('HMGET', hash, field, prefix .. 'rev', prefix .. 'at', prefix .. 'by', prefix .. 'why')
	local changed = (m[1] or default) ~= value
	-- an earlier build has set at, and no rev
	local rev = string.format('%.0f', math.max(now, (tonumber(m[2]) or 0) + 1, (tonumber(m[3]) or 0) + 1))
	local at = string.format('%.0f', now)
	if changed then
		redis.call('HSET', hash, field, value, prefix .. 'by', by, prefix .. 'why', why, prefix .. 'at', at, prefix .. 'rev', rev)
	else
		by, why, at = m[4] or by, m[5] or why, m[3] or '0'
		redis.call('HSET', hash, prefix .. 'rev', rev)
	end
	redis.call('HSET', waiting, name, rev .. ' ' .. at .. ' ' .. #by .. ' ' .. value .. '\n' .. by .. why)
	return changed
end
