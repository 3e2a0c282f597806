-- fields: a function on hashes whose fields are written together, included by other scripts.

-- whole returns the values of a hash's fields in order. It returns an error if the hash has some of the fields but
-- not all. If the hash does not exist, all values are false.
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

