-- grab: decides up to 128 grabs of one campaign on one shard, and writes one stream entry for all that it grants.
--
-- KEYS  1 meta  2 events  3 campaign  4 stock  5 receipts  6... a hash of counters for each name in ARGV[3]
-- ARGV  1 bound of the backlog, events
--       2 names of the facts that each grab brings, "device,channel", "" for none
--       3 names of the hashes of counters that the campaign's limits by facts need now, "" for none: "c" counts for the whole
--         campaign, "d20778" for a day, "h498672" for an hour, in this order, joined by ","
--       4 flags: "d" if no user comes twice, "t" if the grabs bring traceparents
--       5 n, number of grabs
--       6 which value of each fact a grab brings: for each name in that order a byte with the number of values, then n
--         bytes with the place, from 1, of each grab's value among them
--       7... n users, n request ids ("" for none), with flag t n traceparents ("" for none), then the values of each fact,
--         none twice
-- Reply flat strings: the answers, one for each grab, separated by tabs; Redis time in ms; window's start in ms; the last
--       seq before this call. An answer is
--       <packet> <amount>    granted now, with the next seq; the time is now, the request id the grab's own
--       =<receipt>           granted before by the same request id
--       a<receipts>          already granted: all receipts of the user, and he gets no other one now
--       l<by>:<per>:<max>:<ms>  limit reached; ms is when it counts anew, 0 for never
--       s sold out   n not started   e ended   p paused   u unknown campaign
--       b busy   f frozen         undecided, to be repeated
--       F<names> <hashes>    the limits need these facts and hashes, not those of ARGV[2] and ARGV[3]; nothing was decided
--       A receipt is "packet amount seq ms request-id", ms since the window's start; receipts are separated by newlines.
-- Cost  O(grabs, and receipts of their users): some 50 us for one, 0.5 ms for 128, on one core.
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
table.remove(KEYS) -- meta once more, and the epoch: what goes along with every call, see guard.lua
local seen = tonumber(table.remove(ARGV))
table.remove(ARGV)
local meta = call('HMGET', KEYS[1], 'seq', 'epoch', 'finished', 'frozen', 'opened', 'seen')
local camp, damage = whole(KEYS[3], 'state', 'from', 'to', 'user_campaign', 'user_day', 'user_hour',
	'fact_names', 'fact_limits', 'zone', 'granted', 'granted_amount')
if not meta[1] or not meta[2] then
	return redis.error_reply('HBFROZEN Redis has lost the shard, or nobody founded it')
end
if seen > tonumber(meta[1]) then
	call('HSET', KEYS[1], 'frozen', meta[4] or now_text, 'seen', format('%d', math.max(seen, tonumber(meta[6] or 0))))
	return redis.error_reply('HBFROZEN the shard has come to event ' .. meta[1] .. ', and event ' .. seen .. ' was seen')
end
if meta[4] then
	return redis.error_reply('HBFROZEN the shard waits until what Redis may have lost is known')
end
if meta[5] ~= OPENED then
	return redis.error_reply('HBOPENED the shard was opened for another server')
end
if damage then
	return damage
end

local from_text = camp[2] or '0'
local from = tonumber(from_text)
local seq = tonumber(meta[1])
local n = tonumber(ARGV[5])
local users, requests, traces = 6, 6 + n, 6 + 2 * n -- what is of grab i stands i places behind
local values = traces
if find(ARGV[4], 't', 1, true) then
	values = traces + n
else
	traces = nil
end

-- zone is "ms:seconds ms:seconds ...", rising: from when on which UTC offset is in force. Days and hours are those of the
-- campaign's clock on the wall; an hour that a clock change repeats counts as two.
local UNIT = { day = 86400000, hour = 3600000 }
local function shift_of(per, seconds)
	return per == 'hour' and seconds * 1000 % UNIT.hour or seconds * 1000
end

-- The day or hour that it is now: its number, when it began, when the next one begins. Where the clock is put back from
-- one day into the one before, what lies between counts in both.
local function period(per)
	if per == 'campaign' then
		return nil, nil, 0
	end
	local shift, began, shift_before, change, next_shift = 0, -math.huge, nil, nil, nil
	for at, seconds in gmatch(camp[9], '(%-?%d+):(%-?%d+)') do -- nearly always there is but one
		at, seconds = tonumber(at), shift_of(per, seconds)
		if at <= now then
			shift, began, shift_before = seconds, at, began > -math.huge and shift
		elseif not change then
			change, next_shift = at, seconds
		end
	end
	local unit = UNIT[per]
	local bucket = math.floor((now + shift) / unit)
	local start, resets = bucket * unit - shift, (bucket + 1) * unit - shift
	if shift_before then
		local start_before = bucket * unit - shift_before
		start = math.max(start, began)
		start = start_before < began and math.min(start, start_before) or start
	end
	if change and change <= resets then
		resets = math.max(change, (bucket + 1) * unit - next_shift)
	end
	return bucket, start, resets
end

-- counters: per -> its hash, and until when that counts. hashes: their names, as ARGV[3] should have them
local counters, hashes = {}, ''
if camp[8] and camp[8] ~= '' then
	local key = 6
	for _, per in ipairs({ 'campaign', 'day', 'hour' }) do
		if find(camp[8], per, 1, true) then
			local bucket, _, resets = period(per)
			hashes = hashes .. (key > 6 and ',' or '') .. sub(per, 1, 1) .. (bucket and format('%d', bucket) or '')
			counters[per] = { key = KEYS[key], resets = resets }
			key = key + 1
		end
	end
end

-- answers are written over the receipts as each grab has been decided
local answers = call('HMGET', KEYS[5], unpack(ARGV, users + 1, users + n))

-- one answer for all: nothing but types is looked at below it
local every = (camp[1] == 'frozen' and 'f') or (not camp[1] and 'u') or
	((camp[7] ~= ARGV[2] or hashes ~= ARGV[3]) and 'F' .. camp[7] .. ' ' .. hashes)
if every then
	call('XLEN', KEYS[2])
	call('LLEN', KEYS[4])
	for k = 6, #KEYS do
		call('HLEN', KEYS[k])
	end
	for i = 1, n do
		answers[i] = every
	end
	return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
end

-- what a grab that is no repeat is refused with, if the user has nothing yet
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
if not find(ARGV[4], 'd', 1, true) then
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

local user_limits = {}
for i = 1, one_each and 0 or 3 do
	local most = tonumber(camp[3 + i] or '')
	if most and not refusal then
		local per = (i == 1 and 'campaign') or (i == 2 and 'day') or 'hour'
		local _, start, resets = period(per)
		user_limits[#user_limits + 1] = { per = per, max = most, start = start and start - from, resets = resets }
	end
end

-- limits by facts: "position:per:max ...". Each has its fields, one for each value of its fact, and what they count; of
-- tells for each grab which one it looks at.
local fact_limits = {}
if ARGV[2] ~= '' and not refusal then
	local firsts, first = {}, values -- where the values of each fact stand
	for at = 1, #ARGV[6], n + 1 do
		firsts[#firsts + 1] = first
		first = first + byte(ARGV[6], at)
	end
	for position, per, most in gmatch(camp[8], '(%d+):(%a+):(%d+)') do
		local head, at = position .. ':', (position - 1) * (n + 1) + 1
		first = firsts[tonumber(position)]
		local fields = { unpack(ARGV, first + 1, first + byte(ARGV[6], at)) }
		for k = 1, #fields do
			fields[k] = head .. fields[k]
		end
		local hash = counters[per]
		local counts = call('HMGET', hash.key, unpack(fields))
		for k = 1, #fields do
			counts[k] = tonumber(counts[k] or 0)
		end
		fact_limits[#fact_limits + 1] = {
			position = tonumber(position), per = per, max = tonumber(most), resets = hash.resets, key = hash.key,
			fields = fields, counts = counts, before = { unpack(counts) }, of = { byte(ARGV[6], at + 1, at + n) },
		}
	end
else
	for k = 6, #KEYS do
		call('HLEN', KEYS[k])
	end
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

-- A user's receipts stand in the order of time. So a limit is reached if he has that many, and the earliest of the last
-- that many is of the present period.
local begins = {}
local function refused_by_user(receipts)
	local count, at = 0, 0
	while at do
		count = count + 1
		begins[count] = at + 1
		at = find(receipts, '\n', at + 1, true)
	end
	for _, limit in ipairs(user_limits) do
		if count >= limit.max then
			local earliest = limit.start and match(receipts, '^%d+ %d+ %d+ (%d+)', begins[count - limit.max + 1])
			if not limit.start or tonumber(earliest) >= limit.start then
				return 'luser:' .. limit.per .. ':' .. limit.max .. ':' .. format('%d', limit.resets)
			end
		end
	end
end

local function same_request(receipts, request)
	local last = sub(receipts, -#request - 1) == ' ' .. request and #receipts
	local at = find(receipts, ' ' .. request .. '\n', 1, true)
	local to = at and at + #request or last
	if to then
		local first = to
		while first > 1 and byte(receipts, first - 1) ~= 10 do
			first = first - 1
		end
		return '=' .. sub(receipts, first, to)
	end
end

local DIGITS = { '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local low, above = 0, nil -- the last digit of a seq, and what stands before it
local room = tonumber(ARGV[1]) - (seq - tonumber(meta[3] or 0))
local dt = ' ' .. format('%d', now - from) .. ' '
local granted, amount, filled = 0, 0, 0
local stored = { unpack(ARGV, users + 1, users + 2 * n) } -- user, receipts, user, receipts, ... of those who are granted; made in its full size
local nlimits = #fact_limits

for i = 1, n do
	local mine, request = answers[i], ARGV[requests + i]
	local user = ARGV[users + i]
	if held then
		mine = held[user]
	end
	local answer
	if mine then
		answer = request ~= '' and same_request(mine, request) or ((one_each or refusal) and 'a' .. mine) or refused_by_user(mine)
	else
		answer = refusal
	end
	if not answer then
		for k = 1, nlimits do
			local limit = fact_limits[k]
			if limit.counts[limit.of[i]] >= limit.max then
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
				local limit = fact_limits[k]
				local field = limit.of[i]
				limit.counts[field] = limit.counts[field] + 1
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
call('XADD', KEYS[2], '*', 'v', '1', 'k', 'grant', 'c', match(KEYS[3], '[^:]+$'),
	'q', format('%d', seq + 1), 'e', meta[2], 't', now_text, 'g', table.concat(packets, '\n', 1, granted))
call('HSET', KEYS[5], unpack(stored, 1, filled))
local texts = {} -- few counts differ
for k = 1, nlimits do
	local limit = fact_limits[k]
	local fields, counts, before = limit.fields, limit.counts, limit.before
	local changed, size = { unpack(fields) }, 0
	for i = 1, #fields do
		local count = counts[i]
		if count ~= before[i] then
			texts[count] = texts[count] or format('%d', count)
			changed[size + 1], changed[size + 2] = fields[i], texts[count]
			size = size + 2
		end
	end
	if size > 0 then
		call('HSET', limit.key, unpack(changed, 1, size))
		if UNIT[limit.per] then -- a period's hash goes one period after its end: a clock that is set back a little finds it
			call('PEXPIREAT', limit.key, format('%d', limit.resets + UNIT[limit.per]), 'NX')
		end
	end
end
call('LTRIM', KEYS[4], granted, -1)
call('HSET', KEYS[3], 'granted', format('%d', camp[10] + granted), 'granted_amount', format('%d', camp[11] + amount))
call('HSET', KEYS[1], 'seq', format('%d', seq + granted))
return { table.concat(answers, '\t'), now_text, from_text, meta[1] }
