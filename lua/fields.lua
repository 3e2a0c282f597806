-- fields: a function on hashes that are written whole, put in front of the scripts that need it.

-- the fields of a hash in order, and an error if it has some of them and lacks another; none are there if it does not exist
local function whole(hash, ...)
	local values = redis.call('HMGET', hash, ...)
	for i = 1, #values do
		if not values[i] then
			for k = 1, #values do
				if values[k] then
					return values, redis.error_reply('HBDAMAGED the hash ' .. hash .. ' lacks its field ' .. select(i, ...) ..
						'; somebody changed it by hand: put the field back. Nothing was changed now')
				end
			end
			return values
		end
	end
	return values
end

