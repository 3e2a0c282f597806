-- control: a function that stores an operator's decision about a campaign or a sink, included by sink and state.

-- decide sets a field of a hash. In fields with the given prefix it stores who decided, why and when. If the field
-- already has the value, the name, reason and time of the first decision stay. Each decision gets a higher rev than
-- the one before: Unix time in ms, unless the clock was set back. decide also adds the decision to waiting, the hash
-- of decisions that are not yet in the ledger. It reports whether the field has changed.
local function decide(hash, waiting, name, field, prefix, default, value, by, why)
	local clock = redis.call('TIME')
	local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
	local m = redis.call('HMGET', hash, field, prefix .. 'rev', prefix .. 'at', prefix .. 'by', prefix .. 'why')
	local changed = (m[1] or default) ~= value
	local rev = string.format('%.0f', math.max(now, (tonumber(m[2]) or 0) + 1))
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
