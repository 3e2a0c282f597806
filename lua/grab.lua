-- grab: decides up to 128 grabs of one campaign on one shard, and writes one stream entry for all that it grants.
--
-- KEYS  1 meta  2 events  3 campaign  4 stock  5 receipts  6 counters
-- ARGV  1 bound of the backlog, events
--       2 names of the facts that each grab brings, "device,channel", "" for none
--       3 flags: "d" if no user comes twice, "t" if the grabs bring traceparents
--       4 n, number of grabs
--       5 which value of each fact a grab brings: for each name in that order a byte with the number of values, then n
--         bytes with the place, from 1, of each grab's value among them
--       6... n users, n request ids ("" for none), with flag t n traceparents ("" for none), then the values of each fact,
--         none twice
-- Reply flat strings: the answers, one for each grab, separated by tabs; Redis time in ms; window's start in ms; the last
--       seq before this call. An answer is
--       <packet> <amount>    granted now, with the next seq; the time is now, the request id the grab's own
--       =<receipt>           granted before by the same request id
--       a<receipts>          already granted: all receipts of the user
--       l<by>:<per>:<max>:<ms>  limit reached; ms is when it counts anew, 0 for never
--       s sold out   n not started   e ended   p paused   u unknown campaign
--       b busy   f frozen         undecided, to be repeated
--       F<names>             the campaign's limits want these facts, not those of ARGV[2]; nothing was decided
--       A receipt is "packet amount seq ms request-id", ms since the window's start; receipts are separated by newlines.
-- Cost  O(grabs): some 50 us for one, 0.5 ms for 128, on one core.
-- First write XADD: it grows memory, so out of memory is refused before any change, and so is a stream of another type.
--       Everything else is checked before it.
-- Repeat a grab with a request id gets its receipt again, word for word, whatever has become of the campaign; one
--       without gets already_granted. A refusal is decided afresh.
--
-- Every grab of a crowd passes here while nobody else can use Redis: tables are made in one piece and used again, a string is
-- made only where it is stored, and numbers become texts ten at a time (format and concat take long for them).

local KEYS, ARGV, call, tonumber = KEYS, ARGV, redis.call, tonumber -- globals are slow
local format, match, gmatch, sub, find, byte = string.format, string.match, string.gmatch, string.sub, string.find, string.byte
local clock = call('TIME')
local now_text = #clock[2] == 6 and clock[1] .. sub(clock[2], 1, 3) or format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000))
local now = tonumber(now_text)
local meta = call('HMGET', KEYS[1], 'seq', 'epoch', 'finished', 'frozen')
local camp = call('HMGET', KEYS[3], 'state', 'from', 'to', 'user_campaign', 'user_day', 'user_hour',
	'fact_names', 'fact_limits', 'zone', 'granted', 'granted_amount')
if not meta[1] then
	return redis.error_reply('HBNOTREADY this shard was never initialised')
end

local from_text = camp[2] or '0'
local from = tonumber(from_text)
local seq = tonumber(meta[1])
local n = tonumber(ARGV[4])
local users, requests, traces = 5, 5 + n, 5 + 2 * n -- what is of grab i stands i places behind
local values = traces
if find(ARGV[3], 't', 1, true) then
	values = traces + n
else
	traces = nil
end

-- answers are written over the receipts as each grab has been decided
local answers = call('HMGET', KEYS[5], unpack(ARGV, users + 1, users + n))

-- one answer for all: nothing but types is looked at below it
local every = (meta[4] == '1' and 'f') or (not camp[1] and 'u') or (camp[7] ~= ARGV[2] and 'F' .. camp[7])
if every then
	call('XLEN', KEYS[2])
	call('LLEN', KEYS[4])
	call('HLEN', KEYS[6])
	for i = 1, n do
		answers[i] = every
	end
	return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
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
		held[ARGV[users + i]] = answers[i]
	end
end
local wanted = 0 -- packets that may be needed
for i = 1, n do
	if not (answers[i] and one_each) then
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
	local at, seconds = match(camp[9], '^(%-?%d+):(%-?%d+)$') -- nearly always there is but one
	if at and tonumber(at) <= ms then
		shift = shift_of(per, seconds)
	else
		for later, offset in gmatch(camp[9], '(%-?%d+):(%-?%d+)') do
			later = tonumber(later)
			if later <= ms then
				shift = shift_of(per, offset)
			elseif not change then
				change, next_shift = later, shift_of(per, offset)
			end
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
for i = 1, one_each and 0 or 3 do
	local most = tonumber(camp[3 + i] or '')
	if most and not refusal then
		local per = (i == 1 and 'campaign') or (i == 2 and 'day') or 'hour'
		local bucket, resets = period(per, now)
		user_limits[#user_limits + 1] = { per = per, max = most, bucket = bucket, resets = resets }
	end
end

-- limits by facts: "position:per:max ...". fields are the counters of each limit, one for each value of its fact; there are as
-- many as values, or more. field_of says for each limit and grab which one it looks at, most_of up to where it may rise.
local fact_limits, field_of, most_of, fields, counts, total = {}, {}, {}, nil, nil, 0
if ARGV[2] ~= '' and not refusal then
	local firsts, first = {}, values -- where the values of each fact stand
	for at = 1, #ARGV[5], n + 1 do
		firsts[#firsts + 1] = first
		first = first + byte(ARGV[5], at)
	end
	fields = { unpack(ARGV, values + 1) }
	for position, per, most in gmatch(camp[8], '(%d+):(%a+):(%d+)') do
		local bucket, resets = period(per, now)
		local head = position .. sub(per, 1, 1) .. ':' .. (bucket or '') .. ':'
		position = tonumber(position)
		local at = (position - 1) * (n + 1) + 1
		local limit, of = #fact_limits + 1, { byte(ARGV[5], at + 1, at + n) }
		for i = 1, total > 0 and n or 0 do
			of[i] = of[i] + total
		end
		fact_limits[limit] = { position = position, per = per, resets = resets }
		field_of[limit], most_of[limit] = of, tonumber(most)
		local size = byte(ARGV[5], at)
		for k = 1, size do
			fields[total + k] = head .. ARGV[firsts[position] + k]
		end
		total = total + size
	end
	counts = call('HMGET', KEYS[6], unpack(fields)) -- at most 16 limits, so far below what a call can take
	for i = 1, total do
		counts[i] = tonumber(counts[i] or 0)
	end
else
	call('HLEN', KEYS[6])
end

local function refused_by_fact(limit, most)
	local at = 0
	for name in gmatch(ARGV[2], '[^,]+') do
		at = at + 1
		if at == limit.position then
			return 'l' .. name .. ':' .. limit.per .. ':' .. most .. ':' .. format('%d', limit.resets)
		end
	end
end

local function refused_by_user(receipts)
	if one_each then
		return 'a' .. receipts
	end
	for _, limit in ipairs(user_limits) do
		local count = 0
		for dt in gmatch(receipts, '%d+ %d+ %d+ (%d+) [^\n]*') do
			if limit.per == 'campaign' or period(limit.per, from + dt) == limit.bucket then
				count = count + 1
			end
		end
		if count >= limit.max then
			return 'luser:' .. limit.per .. ':' .. limit.max .. ':' .. format('%d', limit.resets)
		end
	end
end

local function same_request(receipts, request)
	for receipt in gmatch(receipts, '[^\n]+') do
		if sub(receipt, -#request - 1) == ' ' .. request then
			return '=' .. receipt
		end
	end
end

local DIGITS = { '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local low, above = 0, nil -- the last digit of a seq, and what stands before it
local room = tonumber(ARGV[1]) - (seq - tonumber(meta[3] or 0))
local dt = ' ' .. format('%d', now - from) .. ' '
local granted, amount, filled = 0, 0, 0
local stored = { unpack(ARGV, users + 1, users + 2 * n) } -- user, receipts, user, receipts, ... of those who are granted; made in its full size
local nlimits = #fact_limits
local before = counts and { unpack(counts) }

for i = 1, n do
	local mine, request = answers[i], ARGV[requests + i]
	local user = ARGV[users + i]
	if held then
		mine = held[user]
	end
	local answer = mine and request ~= '' and same_request(mine, request) or refusal or (mine and refused_by_user(mine))
	if not answer then
		for k = 1, nlimits do
			if counts[field_of[k][i]] >= most_of[k] then
				answer = refused_by_fact(fact_limits[k], most_of[k])
				break
			end
		end
	end
	if not answer then
		answer = packets[granted + 1]
		if not answer then
			answer = 's'
		elseif granted >= room then
			answer = 'b'
		else
			granted = granted + 1
			local cut = find(answer, ' ', 1, true)
			amount = amount + sub(answer, cut + 1)
			low = low + 1
			if low == 10 or not above then
				local at = seq + granted
				low = at % 10
				above = at > 9 and ' ' .. format('%d', (at - low) / 10) or ' '
			end
			local receipt = answer .. above .. DIGITS[low + 1] .. dt .. request
			mine = mine and (mine .. '\n' .. receipt) or receipt
			if held then
				held[user] = mine
			end
			stored[filled + 1], stored[filled + 2] = user, mine -- one that comes twice is set twice: the last value stays
			filled = filled + 2
			for k = 1, nlimits do
				local field = field_of[k][i]
				counts[field] = counts[field] + 1
			end
			local trace = traces and ARGV[traces + i] or ''
			packets[granted] = answer .. ' ' .. user .. ' ' ..
				(request ~= '' and request or '-') .. (trace ~= '' and ' ' .. trace or ' -')
		end
	end
	answers[i] = answer
end

if granted == 0 then
	call('XLEN', KEYS[2])
	return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
end
local counters, size, texts = total > 0 and { unpack(fields) }, 0, {} -- few counts differ
for i = 1, total do
	local count = counts[i]
	if count ~= before[i] then
		texts[count] = texts[count] or format('%d', count)
		counters[size + 1], counters[size + 2] = fields[i], texts[count]
		size = size + 2
	end
end
call('XADD', KEYS[2], '*', 'v', '1', 'k', 'grant', 'c', match(KEYS[3], '[^:]+$'),
	'q', format('%d', seq + 1), 'e', meta[2], 't', now_text, 'g', table.concat(packets, '\n', 1, granted))
call('HSET', KEYS[5], unpack(stored, 1, filled))
if size > 0 then
	call('HSET', KEYS[6], unpack(counters, 1, size))
end
call('LTRIM', KEYS[4], granted, -1)
call('HSET', KEYS[3], 'granted', format('%d', camp[10] + granted), 'granted_amount', format('%d', camp[11] + amount))
call('HSET', KEYS[1], 'seq', format('%d', seq + granted))
return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
