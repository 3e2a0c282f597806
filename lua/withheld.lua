-- withheld: functions on the packets of a campaign that restores have withheld, included by other scripts. The field
-- withheld of the campaign's hash is "packets amount": number and sum of the packets in the list withheld.

-- withheld_of returns packets and amount. It returns nil and an error if the field is unreadable or contradicts the
-- list.
local function withheld_of(campaign, list)
	local text, has = redis.call('HGET', campaign, 'withheld'), redis.call('LLEN', list)
	local packets, amount = string.match(text or '0 0', '^(%d+) (%d+)$')
	if not packets or tonumber(packets) ~= has then
		return nil, redis.error_reply('HBDAMAGED the field withheld of ' .. campaign .. ' is ' .. (text or 'absent') ..
			', and its list has ' .. has .. ' packets; somebody changed one by hand. Nothing was changed now')
	end
	return tonumber(packets), tonumber(amount)
end

local function set_withheld(campaign, packets, amount)
	redis.call('HSET', campaign, 'withheld', string.format('%.0f %.0f', packets, amount))
end

-- withhold_next returns what a restore left to the time when a lost top-up is dealt again, from the field of that name: how
-- many packets are still to be withheld, the number of the last packet that this concerns, and how many packets of the
-- generation that is being dealt were withheld. Later top-ups are not concerned: nobody can have got their packets.
local function withhold_next(campaign)
	local owed, upto, moved = string.match(redis.call('HGET', campaign, 'withhold_next') or '', '^(%d+) (%d+) (%d+)$')
	return tonumber(owed or 0), tonumber(upto or 0), tonumber(moved or 0)
end

local function set_withhold_next(campaign, owed, upto, moved)
	if owed == 0 and moved == 0 then
		redis.call('HDEL', campaign, 'withhold_next')
	else
		redis.call('HSET', campaign, 'withhold_next', string.format('%.0f %.0f %.0f', owed, upto, moved))
	end
end

-- add_above counts packets that users have above the campaign's limit of packets per user: a person granted them, or a
-- restore put them back. Without this count a close would take them for receipts that somebody wrote by hand.
local function add_above(campaign, packets)
	redis.call('HINCRBY', campaign, 'above_limit', packets)
end
