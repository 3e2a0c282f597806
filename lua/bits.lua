-- bits: functions on the done bitmaps, included by other scripts. A mark begins with the number of the chunk's bitmap
-- in KEYS, the first bit and the last bit. Runs of events are written "first-last,first-last".
--
-- A campaign's hash counts its grants on the shard that a sink has finished: the field done:SINK those that the sink
-- got, dead:SINK those with a dead letter that was not requeued. Each script that sets the bit of a grant adds 1 to one
-- of them. So their sum is the number of the campaign's grants whose bit was set. Trimming deletes bits; counts stay.

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

-- set_bits sets the bits from first to last. It returns how many of them were not set before.
local function set_bits(bitmap, first, last)
	local new = math.max(0, last - first + 1)
	local low, high = math.ceil(first / 8), math.floor((last + 1) / 8) -- whole bytes low..high-1
	if high <= low then
		for bit = first, last do
			new = new - redis.call('SETBIT', bitmap, bit, 1)
		end
		return new
	end
	new = new - redis.call('BITCOUNT', bitmap, low, high - 1)
	redis.call('SETRANGE', bitmap, low, string.rep('\255', high - low))
	for bit = first, low * 8 - 1 do
		new = new - redis.call('SETBIT', bitmap, bit, 1)
	end
	for bit = high * 8, last do
		new = new - redis.call('SETBIT', bitmap, bit, 1)
	end
	return new
end

-- finish sets bits, and adds the number of new ones to fresh[campaign]. Trimming has deleted the bits before kept: they
-- were set, so they are not new.
local function finish(bitmap, first, last, kept, fresh, campaign)
	set_bits(bitmap, first, math.min(last, kept - 1)) -- or none
	fresh[campaign] = (fresh[campaign] or 0) + set_bits(bitmap, math.max(first, kept), last)
end

-- add_finished adds a number to a count of a campaign. A campaign that is no longer in Redis has no counts.
local function add_finished(campaign, count, number)
	if number ~= 0 and redis.call('HLEN', campaign) > 0 then
		redis.call('HINCRBY', campaign, count, number)
	end
end

-- add_done adds what finish has counted in fresh to the done counts of the campaigns KEYS[first] to KEYS[last].
local function add_done(first, last, sink, fresh)
	for i = first, last do
		add_finished(KEYS[i], 'done:' .. sink, fresh[i] or 0)
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

