-- grab: decides up to 128 grabs of one campaign on one shard, and writes one stream entry for all grants of the call.
--
-- KEYS  1 meta  2 events  3 campaign  4 stock of the generation in ARGV 1  5 receipts  6... the hash of counters of
--       each limit by a fact
-- ARGV  1 bytes, numbers of several bytes are big-endian: 1 n, number of grabs; 2 number of limits by user; 3 number
--         of limits by facts; then 0 or 1 each: 4 all users are distinct, 5 the grabs have traceparents, 6 a user gets
--         one packet only, 7 the expiry of the counters must be set; 8 the generation, 0 if the campaign has one place
--         and one generation; 9 0 or 1: users have packets on other places; 10 the backlog is checked once in this
--         number of events, 1 to 255; the latest event that the caller has seen: 11-17 its epoch, 18-24 its seq; the
--         terms: 25-30 the window's start in ms, 31-36 the first ms and 37-42 the end of their validity in ms; 43-49
--         bound of the backlog, events; then for each limit by a fact 7 bytes with its max, a byte with the number of
--         its values, and n bytes with the position, from 1, of each grab's value among them; then text: for each limit
--         by user "max:start", ms since the window's start when its period began, "-" for campaign; "|"; for each limit
--         by a fact the time in ms when its counters expire, 0 for never; all separated by spaces
--       2 campaign's id and currency ("-" for none), separated by a space  3 terms: revision
--       4... n users, n request ids ("" for none), n traceparents ("-" for none) if there are any; if any user has
--         packets on other places, n texts with their times, ms since the window's start, separated by spaces; then for
--         each limit by a fact its distinct values, each "position of the fact:value"
-- Reply one string, its parts separated by tabs: Redis time in ms; window's start in ms, "" if it is that of the
--       terms; the last seq before this call; the epoch; then the answers, one for each grab. An answer is
--       <packet> <amount>    granted now, with the next seq; the time is now, the request id the grab's own
--       =<receipt>           granted before by the same request id
--       a<receipts>          already granted: all receipts of the user, who gets no further packet now
--       l<place>             limit reached; its position among the terms, from 1, limits by user first
--       s<receipts>          nothing is left, at this place and in this generation if there are several; only then
--                            with the receipts of the user, if there are any
--       n not started   e ended   p paused   u unknown campaign
--       b busy   f frozen   r refilling: the generation is not dealt here yet         undecided, to be repeated
--       A receipt is "packet amount seq ms request-id", ms since the window's start; receipts are separated by
--       newlines.
--       Or an array, "T" and the campaign's present terms, if ARGV has others; nothing was decided: names of the
--       facts that limits count by, "device,channel"; revision; the first ms and the end of their validity in ms;
--       the window's start in ms; number of places; newest generation; 1 if a user gets
--       one packet only; number of limits by user, and for each: per, max, ms since the window's start when its period
--       began ("-" for campaign), ms when its count starts again (0 for never); for each limit by a fact: name, per,
--       max, ms when its count starts again, the name of its hash of counters: "c" counts for the whole campaign,
--       "d20778" for a day, "h498672" for an hour
-- Cost  O(grabs, and receipts of their users): some 20 us for one, 0.4 ms for 128, on one core.
-- First write XADD: it grows memory, so a lack of memory or a stream of another type fails before any change. The
--       script checks everything else before it. A shard that lacks an event that the caller has seen is frozen before
--       that.
-- Repeat a grab with a request id gets the same receipt again, unless the campaign is frozen or gone; a grab without
--       one gets already_granted or limit_reached, or another packet if the limits allow it. A refusal is decided
--       again.
--
-- This script decides how many grabs Redis can serve, because Redis runs nothing else meanwhile. So data that does
-- not change from call to call comes in ARGV, and is valid for the campaign's revision. The script creates functions,
-- tables and strings only where it needs them, and formats each number only once.

local KEYS, ARGV, call = KEYS, ARGV, redis.call -- globals are slow
local format, find, sub, byte = string.format, string.find, string.sub, string.byte
local meta = call('HMGET', KEYS[1], 'seq', 'epoch', 'frozen', 'opened')
local camp = call('HMGET', KEYS[3], 'state', 'revision')
local clock = call('TIME')
local now_text = #clock[2] == 6 and clock[1] .. sub(clock[2], 1, 3) or format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000))
local n, by_user, by_fact, distinct, traced, one_each, expire, generation, away, stride, e1, e2, e3, e4, e5, e6, e7,
	s1, s2, s3, s4, s5, s6, s7, f1, f2, f3, f4, f5, f6, a1, a2, a3, a4, a5, a6, u1, u2, u3, u4, u5, u6 = byte(ARGV[1], 1, 42)
local seen_epoch = (((((e1 * 256 + e2) * 256 + e3) * 256 + e4) * 256 + e5) * 256 + e6) * 256 + e7 -- see guard.lua
local seen = (((((s1 * 256 + s2) * 256 + s3) * 256 + s4) * 256 + s5) * 256 + s6) * 256 + s7

if not meta[1] or not meta[2] then
	return redis.error_reply('HBFROZEN Redis has lost the shard, or nobody founded it')
end
local seq, epoch, now = meta[1] + 0, meta[2] + 0, now_text + 0 -- cheaper than tonumber
if seen_epoch > epoch or seen > seq and seen_epoch == epoch then
	local was = call('HGET', KEYS[1], 'seen') or ''
	local was_epoch, was_seq = string.match(was, '^(%d+) (%d+)$')
	was_epoch, was_seq = tonumber(was_epoch or 0), tonumber(was_seq or 0)
	local later = was_epoch > seen_epoch or was_epoch == seen_epoch and was_seq > seen
	call('HSET', KEYS[1], 'frozen', meta[3] or now_text, 'seen', later and was or format('%d %d', seen_epoch, seen))
	return redis.error_reply('HBFROZEN the shard has come to event ' .. meta[1] .. ' of epoch ' .. meta[2] .. ', and event ' ..
		format('%d of epoch %d', seen, seen_epoch) .. ' was seen')
elseif meta[3] then
	return redis.error_reply('HBFROZEN the shard waits until what Redis may have lost is known')
elseif meta[4] ~= OPENED then
	return redis.error_reply('HBOPENED the shard was opened for another server')
end

local from = ((((f1 * 256 + f2) * 256 + f3) * 256 + f4) * 256 + f5) * 256 + f6
local window, refusal = '', nil -- start of the window, if the reply needs it

-- Slow path: the terms in ARGV are not valid, or the campaign is not open. The script reads the campaign's fields.
-- refusal is then the answer to grabs of users without receipts.
if camp[1] ~= 'open' or camp[2] ~= ARGV[3] or now < ((((a1 * 256 + a2) * 256 + a3) * 256 + a4) * 256 + a5) * 256 + a6 or
	now >= ((((u1 * 256 + u2) * 256 + u3) * 256 + u4) * 256 + u5) * 256 + u6 then
	local damage
	camp, damage = whole(KEYS[3], 'state', 'from', 'to', 'user_campaign', 'user_day', 'user_hour', 'fact_names', 'fact_limits',
		'zone', 'revision')
	if damage then
		return damage
	end
	window = camp[2] or '0'
	if camp[1] == 'frozen' or not camp[1] then
		local every = camp[1] and 'f' or 'u'
		return now_text .. '\t' .. window .. '\t' .. meta[1] .. '\t' .. meta[2] .. string.rep('\t' .. every, n)
	elseif camp[1] == 'paused' and now < tonumber(camp[3]) then
		refusal = 'p'
	elseif camp[1] == 'loading' or camp[1] == 'open' and now < tonumber(window) then
		refusal = 'n'
	elseif camp[1] ~= 'open' or now >= tonumber(camp[3]) then -- also closed and refunded ones
		refusal = 'e'
	end
	if not refusal then
		local ends = math.min(tonumber(camp[3]), 9999999999999) -- ARGV has 6 bytes for it
		-- The field zone is "ms:seconds ms:seconds ...", in ascending order: from time ms on, the UTC offset is that
		-- many seconds. Days and hours are in the campaign's local time. An hour that a clock change repeats counts
		-- as two hours.
		local UNIT = { day = 86400000, hour = 3600000 }
		local function shift_of(per, seconds)
			return per == 'hour' and seconds * 1000 % UNIT.hour or seconds * 1000
		end

		-- period returns the present day or hour: its number, its start, and the start of the next one. If the local
		-- clock goes back over midnight, the repeated time counts for both days. period also limits ends to the end
		-- of the period and to the next clock change.
		local function period(per)
			if per == 'campaign' then
				return nil, nil, 0
			end
			local shift, began, shift_before, change, next_shift = 0, -math.huge, nil, nil, nil
			for at, seconds in string.gmatch(camp[9], '(%-?%d+):(%-?%d+)') do -- usually a single offset
				at, seconds = tonumber(at), shift_of(per, seconds)
				if at <= now then
					shift, began, shift_before = seconds, at, began > -math.huge and shift
				elseif not change then
					change, next_shift = at, seconds
					ends = math.min(ends, at)
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
			ends = math.min(ends, resets)
			return bucket, start, resets
		end

		local limits, users = {}, 0
		local function add(...)
			for i = 1, select('#', ...) do
				limits[#limits + 1] = select(i, ...)
			end
		end
		local hold = camp[4] == '1'
		for i, per in ipairs({ 'campaign', 'day', 'hour' }) do
			if not hold and camp[3 + i] ~= '' then
				local _, start, resets = period(per)
				add(per, camp[3 + i], start and format('%d', start - window) or '-', format('%d', resets))
				users = users + 1
			end
		end
		for position, per, most in string.gmatch(camp[8], '(%d+):(%a+):(%d+)') do
			local bucket, _, resets = period(per)
			local at = 0
			for name in string.gmatch(camp[7], '[^,]+') do
				at = at + 1
				if at == tonumber(position) then
					add(name, per, most, format('%d', resets))
				end
			end
			add(sub(per, 1, 1) .. (bucket and format('%d', bucket) or ''))
		end
		local walk = call('HMGET', KEYS[3], 'places', 'generation')
		return { 'T', camp[7], camp[10], now_text, format('%d', ends), window, walk[1] or '1', walk[2] or '1',
			hold and '1' or '0', format('%d', users), unpack(limits) }
	end
end

local users = 3 -- offsets into ARGV: the value of grab i is at offset + i
local requests, traces = users + n, users + 2 * n
local elsewhere = traced == 1 and traces + n or traces
local first = away == 1 and elsewhere + n or elsewhere -- offset of the values of the next fact

-- answers[i] is first the receipts of grab i's user, then the answer to the grab
local answers = n == 1 and { call('HGET', KEYS[5], ARGV[4]) } or call('HMGET', KEYS[5], unpack(ARGV, users + 1, requests))
local held -- from user to receipts, updated by each grant; only used if a user has several grabs in the call
if distinct == 0 then
	held = {}
	for i = 1, n do
		held[ARGV[users + i]] = answers[i]
	end
end
local winners = 0
for i = 1, n do
	if answers[i] then
		winners = winners + 1
	end
end

-- packets are those that this call can grant at most; none before the generation is dealt
local packets
local refilling = generation > 1 and (call('HGET', KEYS[3], 'dealt') or 1) - generation < 0
local wanted = one_each == 1 and n - winners or n
if refusal or refilling or wanted == 0 then
	packets = {}
elseif wanted == 1 then
	packets = { call('LINDEX', KEYS[4], '0') }
else
	packets = call('LRANGE', KEYS[4], '0', format('%d', wanted - 1))
end

-- told returns the answer to a user who has receipts, here or on other places. It returns nil if the user may get
-- another packet.
local told
if winners > 0 or held or away == 1 then
	local begins, bounds = {}, sub(ARGV[1], 50 + by_fact * (8 + n))
	-- A user's receipts are in ascending order of time. A limit of max is reached if the user has max receipts and
	-- the earliest of the last max receipts is in the present period. Each receipt on another place in the present
	-- period lowers max by one.
	local function limited(receipts, times)
		local count, at = 0, receipts and 0
		while at do
			count = count + 1
			begins[count] = at + 1
			at = find(receipts, '\n', at + 1, true)
		end
		local place = 0
		for most, start in string.gmatch(bounds, '(%d+):([^ |]+)') do
			place, most = place + 1, tonumber(most)
			for time in string.gmatch(times, '%d+') do
				if start == '-' or tonumber(time) >= tonumber(start) then
					most = most - 1
				end
			end
			if most <= 0 then
				return 'l' .. place
			elseif count >= most then
				local earliest = start ~= '-' and string.match(receipts, '^%d+ %d+ %d+ (%d+)', begins[count - most + 1])
				if start == '-' or tonumber(earliest) >= tonumber(start) then
					return 'l' .. place
				end
			end
		end
	end
	told = function(receipts, request, times)
		if receipts and request ~= '' then
			local last = sub(receipts, -#request - 1) == ' ' .. request and #receipts
			local at = find(receipts, ' ' .. request .. '\n', 1, true)
			local to = at and at + #request or last
			if to then
				local begin = to
				while begin > 1 and byte(receipts, begin - 1) ~= 10 do
					begin = begin - 1
				end
				return '=' .. sub(receipts, begin, to)
			end
		end
		if refusal then
			return receipts and 'a' .. receipts or refusal
		end
		return one_each == 1 and 'a' .. (receipts or '') or limited(receipts, times)
	end
end

-- limits are the limits by facts. Each has the counts of its values, its max, and the index of each grab's value. A
-- count is a string as read, and becomes a number when a grant of this call increases it.
local limits
if by_fact > 0 and not refusal then
	limits = { false, false } -- allocated for two, which suffices for most campaigns
	local at = 50
	for k = 1, by_fact do
		local m1, m2, m3, m4, m5, m6, m7, size = byte(ARGV[1], at, at + 7)
		local counts = size == 1 and { call('HGET', KEYS[5 + k], ARGV[first + 1]) } or
			call('HMGET', KEYS[5 + k], unpack(ARGV, first + 1, first + size))
		limits[k] = { counts, (((((m1 * 256 + m2) * 256 + m3) * 256 + m4) * 256 + m5) * 256 + m6) * 256 + m7,
			{ byte(ARGV[1], at + 8, at + 7 + n) }, first, size }
		first, at = first + size, at + 8 + n
	end
end

-- room is how many events the backlog bound still allows. Most calls do not check it.
local room = n
if seq % stride + n >= stride then
	local b1, b2, b3, b4, b5, b6, b7 = byte(ARGV[1], 43, 49)
	room = (((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6) * 256 + b7 - seq + (call('HGET', KEYS[1], 'finished') or 0)
end

-- digits maps a number below 10 to text. A look-up is cheaper than a substring, but creating the table only pays for
-- n > 2.
local digits = n > 2 and { '1', '2', '3', '4', '5', '6', '7', '8', '9', [0] = '0' }
local DIGITS = '0123456789'
local low, above, digit, next_seq = 9, ' ', nil, nil -- last digit of the seq, text before it; text of the first seq
local dt = ' ' .. format('%d', now - from) .. ' '
local granted, filled = 0, 0
local stored = { unpack(ARGV, 1, 2 * n) } -- users and their new receipts in turn; allocated at full size

for i = 1, n do
	local mine, user, request, answer = answers[i], ARGV[users + i], ARGV[requests + i], refusal
	if told then
		if held then
			mine = held[user]
		end
		local times = away == 1 and ARGV[elsewhere + i] or ''
		if mine or times ~= '' then
			answer = told(mine, request, times)
		end
	end
	local counts, value
	if not answer then
		for k = 1, by_fact do
			local limit = limits[k]
			counts, value = limit[1], limit[3][i]
			if (counts[value] or 0) - limit[2] >= 0 then
				answer = 'l' .. by_user + k
				break
			end
		end
	end
	if not answer then
		answer = packets[granted + 1]
		if not answer then
			answer = refilling and 'r' or generation > 0 and mine and 's' .. mine or 's'
		elseif granted >= room then
			answer = 'b'
		else
			granted = granted + 1
			if granted == 1 then
				next_seq = format('%d', seq + 1)
				digit = next_seq
			else
				low = low + 1
				if low == 10 then
					local at = seq + granted
					low = at % 10
					above = at > 9 and ' ' .. format('%d', (at - low) / 10) or ' '
				end
				digit = digits and digits[low] or sub(DIGITS, low + 1, low + 1)
			end
			local receipt = answer .. above .. digit .. dt .. request
			if mine then
				receipt = mine .. '\n' .. receipt
			end
			if held then
				held[user] = receipt
			end
			stored[filled + 1], stored[filled + 2] = user, receipt -- if a user is stored twice, HSET keeps the last value
			filled = filled + 2
			if by_fact == 1 then
				counts[value] = (counts[value] or 0) + 1
			else
				for k = 1, by_fact do
					local limit = limits[k]
					counts, value = limit[1], limit[3][i]
					counts[value] = (counts[value] or 0) + 1
				end
			end
			packets[granted] = answer .. ' ' .. user .. ' ' .. (request ~= '' and request or '-') .. ' ' .. (traced == 1 and ARGV[traces + i] or '-')
		end
	end
	answers[i] = answer
end

local reply = now_text .. '\t' .. window .. '\t' .. meta[1] .. '\t' .. meta[2] .. '\t' .. (n == 1 and answers[1] or table.concat(answers, '\t'))
if granted == 0 then
	return reply
end
-- The currency is last, so that the seq is the third word in each kind of entry: trim.lua reads it there.
local space = find(ARGV[2], ' ', 1, true)
call('XADD', KEYS[2], '*', '3', 'grant ' .. sub(ARGV[2], 1, space) .. next_seq .. ' ' .. meta[2] .. ' ' .. now_text ..
	sub(ARGV[2], space) .. '\n' .. (granted == 1 and packets[1] or table.concat(packets, '\n', 1, granted)))
call('HSET', KEYS[5], unpack(stored, 1, filled))
for k = 1, by_fact do
	local counts, from, size = limits[k][1], limits[k][4], limits[k][5]
	local fields, filled = { unpack(ARGV, 1, 2 * size) }, 0
	for i = 1, size do
		local count = counts[i]
		if type(count) == 'number' then
			fields[filled + 1] = ARGV[from + i]
			fields[filled + 2] = count > 9 and format('%d', count) or digits and digits[count] or sub(DIGITS, count + 1, count + 1)
			filled = filled + 2
		end
	end
	call('HSET', KEYS[5 + k], unpack(fields, 1, filled))
end
if expire == 1 then
	local k, leave = 0, find(ARGV[1], '|', 50 + by_fact * (8 + n), true)
	for at in string.gmatch(sub(ARGV[1], leave + 1), '%d+') do
		k = k + 1
		if at ~= '0' then
			call('PEXPIREAT', KEYS[5 + k], at, 'NX')
		end
	end
end
if granted == 1 then
	call('LPOP', KEYS[4])
else
	call('LTRIM', KEYS[4], format('%d', granted), '-1')
end
call('HSET', KEYS[1], 'seq', granted == 1 and next_seq or format('%d', seq + granted))
return reply
