-- grab: decides up to 128 grabs of one campaign on one shard, and writes one stream entry for all that it grants.
--
-- KEYS  1 meta  2 events  3 campaign  4 stock  5 receipts  6 counters
-- ARGV  1 bound of the backlog, events
--       2 names of the facts that each grab brings, "device,channel", "" for none
--       3 flags: "d" if no user comes twice, "t" if the grabs bring traceparents
--       4... for each grab: user, request id ("" for none), with flag t a traceparent ("" for none), then its facts in
--       that order
-- Reply flat strings: Redis time in ms, window's start in ms, then one for each grab:
--       <receipt>            granted now, or before by the same request id
--       a<receipt> ...       already granted: all receipts of the user, separated by one space
--       l<by>:<per>:<max>:<ms>  limit reached; ms is when it counts anew, 0 for never
--       s sold out   n not started   e ended   p paused   u unknown campaign
--       b busy   f frozen         undecided, to be repeated
--       F<names>             the campaign's limits want these facts, not those of ARGV[2]; nothing was decided
--       A receipt is packet:amount:seq:ms since the window's start:request id.
-- Cost  O(grabs): some 20 us for one, 0.4 ms for 128, on one core.
-- First write XADD: it grows memory, so out of memory is refused before any change, and so is a stream of another type.
--       Everything else is checked before it.
-- Repeat a grab with a request id gets its receipt again, word for word, whatever has become of the campaign; one
--       without gets already_granted. A refusal is decided afresh.

local KEYS, ARGV, call = KEYS, ARGV, redis.call -- globals are slow
local format, gmatch, sub, find = string.format, string.gmatch, string.sub, string.find
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local meta = call('HMGET', KEYS[1], 'seq', 'epoch', 'finished', 'frozen')
local camp = call('HMGET', KEYS[3], 'state', 'from', 'to', 'user_campaign', 'user_day', 'user_hour',
	'fact_names', 'fact_limits', 'zone', 'granted', 'granted_amount', 'left', 'left_amount')
if not meta[1] then
	return redis.error_reply('HBNOTREADY this shard was never initialised')
end

local from = tonumber(camp[2] or 0)
local nfacts = 0
if ARGV[2] ~= '' then
	nfacts = select(2, string.gsub(ARGV[2], ',', ',')) + 1
end
local traces = find(ARGV[3], 't', 1, true) and 1 or 0
local stride = 2 + traces + nfacts
local n = (#ARGV - 3) / stride
local reply = { format('%d', now), format('%d', from) }

-- one answer for all: nothing but types is looked at below it
local every = (meta[4] == '1' and 'f') or (not camp[1] and 'u') or (camp[7] ~= ARGV[2] and 'F' .. camp[7])
local users = {}
for i = 1, n do
	users[i] = ARGV[4 + (i - 1) * stride]
end
local stored = call('HMGET', KEYS[5], unpack(users))
if every then
	call('XLEN', KEYS[2])
	call('LLEN', KEYS[4])
	call('HLEN', KEYS[6])
	for i = 1, n do
		reply[2 + i] = every
	end
	return reply
end

-- what a grab that is no repeat is refused with, whoever asks
local refusal
if camp[1] == 'paused' then
	refusal = 'p'
elseif camp[1] == 'closed' or camp[1] == 'refunded' then -- whatever the window says
	refusal = 'e'
elseif camp[1] == 'loading' or now < from then
	refusal = 'n'
elseif camp[1] ~= 'open' or now >= tonumber(camp[3]) then
	refusal = 'e'
end
if refusal == 'p' and now >= tonumber(camp[3]) then
	refusal = 'e'
end

local one_each = camp[4] == '1'
local held -- user -> receipts as they change below; only needed if a user comes twice
if not find(ARGV[3], 'd', 1, true) then
	held = {}
	for i = 1, n do
		held[users[i]] = stored[i]
	end
end
local wanted = 0 -- packets that may be needed
for i = 1, n do
	if not (stored[i] and one_each) then
		wanted = wanted + 1
	end
end
local packets = {}
if not refusal and wanted > 0 then
	packets = call('LRANGE', KEYS[4], 0, wanted - 1)
else
	call('LLEN', KEYS[4])
end

-- zone is "ms:seconds ms:seconds ...", rising: from when on which UTC offset is in force. Days and hours are those of the
-- campaign's clock on the wall; an hour that a clock change repeats counts as two.
local UNIT = { day = 86400000, hour = 3600000 }
local function shift_of(per, seconds)
	return per == 'hour' and seconds * 1000 % UNIT.hour or seconds * 1000
end

-- the day or hour that holds an instant, and when the next one begins
local function period(per, ms)
	if per == 'campaign' then
		return nil, 0
	end
	local shift, change, next_shift = 0, nil, nil
	for at, seconds in gmatch(camp[9], '(%-?%d+):(%-?%d+)') do
		at = tonumber(at)
		if at <= ms then
			shift = shift_of(per, seconds)
		elseif not change then
			change, next_shift = at, shift_of(per, seconds)
		end
	end
	local unit = UNIT[per]
	local bucket = math.floor((ms + shift) / unit)
	local resets = (bucket + 1) * unit - shift
	if change and change <= resets then
		resets = math.max(change, (bucket + 1) * unit - next_shift)
	end
	return bucket, resets
end

local user_limits = {}
for i, per in ipairs({ 'campaign', 'day', 'hour' }) do
	local most = tonumber(camp[3 + i] or '')
	if most and not refusal then
		local bucket, resets = period(per, now)
		user_limits[#user_limits + 1] = { per = per, max = most, bucket = bucket, resets = resets }
	end
end

-- limits by facts: "position:per:max ...", and the counts that they look at
local fact_limits, fields, counts = {}, {}, {} -- fields: those of the first grab, then of the second, ...
if nfacts > 0 and not refusal then
	local names = {}
	for name in gmatch(ARGV[2], '[^,]+') do
		names[#names + 1] = name
	end
	for position, per, most in gmatch(camp[8], '(%d+):(%a+):(%d+)') do
		local bucket, resets = period(per, now)
		local head = position .. sub(per, 1, 1) .. ':' .. (bucket or '') .. ':'
		fact_limits[#fact_limits + 1] = { by = names[tonumber(position)], position = tonumber(position), per = per,
			max = tonumber(most), resets = resets, head = head }
	end
	for i = 1, n do
		local base = 3 + (i - 1) * stride + 2 + traces
		for _, limit in ipairs(fact_limits) do
			fields[#fields + 1] = limit.head .. ARGV[base + limit.position]
		end
	end
	for at = 1, #fields, 1000 do
		local last = math.min(at + 999, #fields)
		local got = call('HMGET', KEYS[6], unpack(fields, at, last))
		for i = at, last do
			counts[fields[i]] = tonumber(got[i - at + 1] or 0)
		end
	end
else
	call('HLEN', KEYS[6])
end

local nlimits = #fact_limits
local function refused_by_user(receipts)
	if one_each then
		return 'a' .. receipts
	end
	for _, limit in ipairs(user_limits) do
		local count = 0
		for dt in gmatch(receipts, '[^ :]+:%d+:%d+:(%d+):[^ ]*') do
			if limit.per == 'campaign' or period(limit.per, from + dt) == limit.bucket then
				count = count + 1
			end
		end
		if count >= limit.max then
			return 'luser:' .. limit.per .. ':' .. limit.max .. ':' .. format('%d', limit.resets)
		end
	end
end

local function refused_by_fact(i)
	local base = (i - 1) * nlimits
	for k, limit in ipairs(fact_limits) do
		if counts[fields[base + k]] >= limit.max then
			return 'l' .. limit.by .. ':' .. limit.per .. ':' .. limit.max .. ':' .. format('%d', limit.resets)
		end
	end
end

local function same_request(receipts, request)
	for receipt in gmatch(receipts, '[^ ]+') do
		if sub(receipt, -#request - 1) == ':' .. request and
			string.match(receipt, '^%d+:%d+:%d+:%d+:(.*)$') == request then
			return receipt
		end
	end
end

local seq = tonumber(meta[1])
local room = tonumber(ARGV[1]) - (seq - tonumber(meta[3] or 0))
local dt = ':' .. format('%d', now - from) .. ':'
local granted, amount = 0, 0
local lines, receipts, counters = {}, {}, {}
local texts = {} -- of the counts: Redis takes long to turn a number into a text

for i = 1, n do
	local at = 4 + (i - 1) * stride
	local user, request = users[i], ARGV[at + 1]
	local mine = stored[i]
	if held then
		mine = held[user]
	end
	local again = mine and request ~= '' and same_request(mine, request)
	local answer
	if again then
		answer = again
	elseif refusal then
		answer = refusal
	else
		answer = (mine and refused_by_user(mine)) or (nlimits > 0 and refused_by_fact(i))
		if not answer then
			local packet = packets[granted + 1]
			if not packet then
				answer = 's'
			elseif granted >= room then
				answer = 'b'
			else
				granted = granted + 1
				local cut = find(packet, ':', 1, true)
				local value = sub(packet, cut + 1)
				amount = amount + value
				local receipt = packet .. ':' .. format('%d', seq + granted) .. dt .. request
				mine = mine and (mine .. ' ' .. receipt) or receipt
				if held then
					held[user] = mine
				end
				receipts[2 * granted - 1] = user -- a user, or a field, that comes twice is set twice: the last value stays
				receipts[2 * granted] = mine
				for k = (i - 1) * nlimits + 1, i * nlimits do
					local field = fields[k]
					local count = counts[field] + 1
					counts[field] = count
					texts[count] = texts[count] or format('%d', count)
					counters[#counters + 1] = field
					counters[#counters + 1] = texts[count]
				end
				local trace = traces == 1 and ARGV[at + 2] or ''
				lines[granted] = sub(packet, 1, cut - 1) .. ' ' .. value .. ' ' .. user .. ' ' ..
					(request ~= '' and request or '-') .. (trace ~= '' and ' ' .. trace or ' -')
				answer = receipt
			end
		end
	end
	reply[2 + i] = answer
end

if granted == 0 then
	call('XLEN', KEYS[2])
else
	call('XADD', KEYS[2], '*', 'v', '1', 'k', 'grant', 'c', string.match(KEYS[3], '[^:]+$'),
		'q', format('%d', seq + 1), 'e', meta[2], 't', format('%d', now), 'g', table.concat(lines, '\n'))
	call('HSET', KEYS[5], unpack(receipts))
	for at = 1, #counters, 1000 do
		call('HSET', KEYS[6], unpack(counters, at, math.min(at + 999, #counters)))
	end
	call('LTRIM', KEYS[4], granted, -1)
	call('HSET', KEYS[3], 'granted', format('%d', camp[10] + granted),
		'granted_amount', format('%d', camp[11] + amount),
		'left', format('%d', camp[12] - granted), 'left_amount', format('%d', camp[13] - amount))
	call('HSET', KEYS[1], 'seq', format('%d', seq + granted))
end
return reply
