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
-- made only where it is stored, and numbers become texts in pairs of digits (format and concat take long for them).

local KEYS, ARGV, call = KEYS, ARGV, redis.call -- globals are slow
local format, match, gmatch, sub, find, byte = string.format, string.match, string.gmatch, string.sub, string.find, string.byte
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local meta = call('HMGET', KEYS[1], 'seq', 'epoch', 'finished', 'frozen')
local camp = call('HMGET', KEYS[3], 'state', 'from', 'to', 'user_campaign', 'user_day', 'user_hour',
	'fact_names', 'fact_limits', 'zone', 'granted', 'granted_amount', 'left', 'left_amount')
if not meta[1] then
	return redis.error_reply('HBNOTREADY this shard was never initialised')
end

local from = tonumber(camp[2] or 0)
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
local now_text, from_text = format('%d', now), format('%d', from)

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
for i = 1, 3 do
	local most = tonumber(camp[3 + i] or '')
	if most and not refusal then
		local per = (i == 1 and 'campaign') or (i == 2 and 'day') or 'hour'
		local bucket, resets = period(per, now)
		user_limits[#user_limits + 1] = { per = per, max = most, bucket = bucket, resets = resets }
	end
end

-- limits by facts: "position:per:max ...". fields are the counters of each limit, one for each value of its fact.
local fact_limits, fields, before, counts = {}, {}, {}, {}
if ARGV[2] ~= '' and not refusal then
	local firsts, first = {}, values -- where the values of each fact stand
	for at = 1, #ARGV[5], n + 1 do
		firsts[#firsts + 1] = first
		first = first + byte(ARGV[5], at)
	end
	for position, per, most in gmatch(camp[8], '(%d+):(%a+):(%d+)') do
		local bucket, resets = period(per, now)
		local head = position .. sub(per, 1, 1) .. ':' .. (bucket or '') .. ':'
		position = tonumber(position)
		local at, base = (position - 1) * (n + 1) + 1, #fields
		fact_limits[#fact_limits + 1] = { position = position, per = per, max = tonumber(most), resets = resets, base = base,
			of = { byte(ARGV[5], at + 1, at + n) } }
		for k = 1, byte(ARGV[5], at) do
			fields[base + k] = head .. ARGV[firsts[position] + k]
		end
	end
	for at = 1, #fields, 1000 do
		local last = math.min(at + 999, #fields)
		local got = call('HMGET', KEYS[6], unpack(fields, at, last))
		for i = at, last do
			local count = tonumber(got[i - at + 1] or 0)
			before[i], counts[i] = count, count
		end
	end
else
	call('HLEN', KEYS[6])
end

local function refused_by_fact(limit)
	local at = 0
	for name in gmatch(ARGV[2], '[^,]+') do
		at = at + 1
		if at == limit.position then
			return 'l' .. name .. ':' .. limit.per .. ':' .. limit.max .. ':' .. format('%d', limit.resets)
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

local PAIRS = n > 16 and { '01', '02', '03', '04', '05', '06', '07', '08', '09', '10', '11', '12', '13', '14', '15', '16', '17', '18',
	'19', '20', '21', '22', '23', '24', '25', '26', '27', '28', '29', '30', '31', '32', '33', '34', '35', '36', '37', '38', '39',
	'40', '41', '42', '43', '44', '45', '46', '47', '48', '49', '50', '51', '52', '53', '54', '55', '56', '57', '58', '59', '60',
	'61', '62', '63', '64', '65', '66', '67', '68', '69', '70', '71', '72', '73', '74', '75', '76', '77', '78', '79', '80', '81',
	'82', '83', '84', '85', '86', '87', '88', '89', '90', '91', '92', '93', '94', '95', '96', '97', '98', '99', [0] = '00' }
local hundreds, above
local room = tonumber(ARGV[1]) - (seq - tonumber(meta[3] or 0))
local dt = ' ' .. format('%d', now - from) .. ' '
local granted, amount = 0, 0
local stored = { unpack(ARGV, users + 1, users + 2 * n) } -- user, receipts, user, receipts, ... of those who are granted; made in its full size
local nlimits = #fact_limits

for i = 1, n do
	local mine, request = answers[i], ARGV[requests + i]
	local user = ARGV[users + i]
	if held then
		mine = held[user]
	end
	local answer = mine and request ~= '' and same_request(mine, request) or refusal or (mine and refused_by_user(mine))
	if not answer then
		for k = 1, nlimits do
			local limit = fact_limits[k]
			if counts[limit.base + limit.of[i]] >= limit.max then
				answer = refused_by_fact(limit)
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
			local at, receipt = seq + granted, nil
			if PAIRS and at > 99 then
				local low = at % 100
				if at - low ~= hundreds then
					hundreds = at - low
					above = ' ' .. format('%d', hundreds / 100)
				end
				receipt = answer .. above .. PAIRS[low] .. dt .. request
			else
				receipt = answer .. ' ' .. format('%d', at) .. dt .. request
			end
			mine = mine and (mine .. '\n' .. receipt) or receipt
			if held then
				held[user] = mine
			end
			stored[2 * granted - 1] = user -- one that comes twice is set twice: the last value stays
			stored[2 * granted] = mine
			for k = 1, nlimits do
				local field = fact_limits[k].base + fact_limits[k].of[i]
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
local counters, texts = {}, {} -- few counts differ
for i = 1, #fields do
	local count = counts[i]
	if count ~= before[i] then
		texts[count] = texts[count] or format('%d', count)
		counters[#counters + 1] = fields[i]
		counters[#counters + 1] = texts[count]
	end
end
call('XADD', KEYS[2], '*', 'v', '1', 'k', 'grant', 'c', match(KEYS[3], '[^:]+$'),
	'q', format('%d', seq + 1), 'e', meta[2], 't', now_text, 'g', table.concat(packets, '\n', 1, granted))
call('HSET', KEYS[5], unpack(stored, 1, 2 * granted))
for at = 1, #counters, 1000 do
	call('HSET', KEYS[6], unpack(counters, at, math.min(at + 999, #counters)))
end
call('LTRIM', KEYS[4], granted, -1)
call('HSET', KEYS[3], 'granted', format('%d', camp[10] + granted),
	'granted_amount', format('%d', camp[11] + amount),
	'left', format('%d', camp[12] - granted), 'left_amount', format('%d', camp[13] - amount))
call('HSET', KEYS[1], 'seq', format('%d', seq + granted))
return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
