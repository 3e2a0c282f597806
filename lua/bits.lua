-- bits: functions on the done bitmaps, included by other scripts. A mark is three arguments: the number of the
-- chunk's bitmap in KEYS, the first bit and the last bit. Runs of events are written "first-last,first-last".

-- bits_set returns the positions of the bits from first to last that are set in a bitmap.
local function bits_set(bitmap, first, last)
	local set = {}
	local low = math.floor(first / 8)
	local bytes = redis.call('GETRANGE', bitmap, low, math.floor(last / 8))
	for i = 1, #bytes do
		local byte = string.byte(bytes, i)
		if byte ~= 0 then
			for k = 0, 7 do
				local bit = (low + i - 1) * 8 + k
				if bit >= first and bit <= last and math.floor(byte / 2 ^ (7 - k)) % 2 == 1 then
					set[#set + 1] = bit
				end
			end
		end
	end
	return set
end

local function set_bits(bitmap, first, last)
	local low, high = math.ceil(first / 8), math.floor((last + 1) / 8) -- whole bytes low..high-1
	if high <= low then
		for bit = first, last do
			redis.call('SETBIT', bitmap, bit, 1)
		end
		return
	end
	redis.call('SETRANGE', bitmap, low, string.rep('\255', high - low))
	for bit = first, low * 8 - 1 do
		redis.call('SETBIT', bitmap, bit, 1)
	end
	for bit = high * 8, last do
		redis.call('SETBIT', bitmap, bit, 1)
	end
end

local function runs_of(text)
	local list = {}
	for first, last in string.gmatch(text, '(%d+)-(%d+)') do
		list[#list + 1] = { tonumber(first), tonumber(last) }
	end
	return list
end

-- overlap reports whether two lists of runs have an event in common.
local function overlap(a, b)
	for _, x in ipairs(a) do
		for _, y in ipairs(b) do
			if x[1] <= y[2] and y[1] <= x[2] then
				return true
			end
		end
	end
	return false
end

