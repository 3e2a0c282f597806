-- regrant: restores grants that Redis has lost in a frozen shard, in the order of their seqs, or skips seqs whose
-- grants are unknown. A packet comes from the stock. If an earlier attempt has withheld it, it comes from the
-- withheld packets. If Redis has also lost that the campaign was opened, the first grants open it.
--
-- KEYS  1 meta  2 events; for grants also: 3 campaign  4 receipts  5 withheld  6... stock and sums of each generation
-- ARGV  1 the attempt, see mend.lua  2 the first seq  3 the last one for unknown seqs: 4 "*" if they may have been
--       reported to users: a late report then does not freeze the shard again; for grants of one campaign and one
--       time: 4 campaign  5 currency, "-" for none  6 their time in ms  7... for each grant: packet, amount, user,
--       request id ("" for none), traceparent ("-" for none)
-- Reply "ok"; "changed" if a different attempt restores the shard, or if the shard's last seq is not the one before
--       the first; "state" and the campaign's state, if that state allows no grant; "gone" and a packet that is not
--       in the stock
-- Cost  O(grants, packets before them in the stock or in the withheld packets, and chunks that were loaded)
-- First write XADD: it grows memory. The script checks everything before it. It checks the user's rights by an LREM
--       and an LTRIM that change nothing. The LREM is on the sums, because it would be slow on a long stock. It runs
--       when Redis is out of memory too: a frozen shard frees no memory.
-- Repeat answers "ok" and changes nothing.

local m = redis.call('HMGET', KEYS[1], 'seq', 'frozen', 'mend', 'skipped', 'finished')
redis.call('XLEN', KEYS[2])
local epoch = string.match(ARGV[1], '^%d+')
if not m[1] or not m[2] or m[3] ~= ARGV[1] then
	return { 'changed' }
end
if tonumber(m[1]) >= tonumber(ARGV[3]) then
	return { 'ok' }
end
if tonumber(m[1]) ~= ARGV[2] - 1 then
	return { 'changed' }
end
if #ARGV == 4 then
	local clock = redis.call('TIME')
	redis.call('XADD', KEYS[2], '*', '2', 'epoch - ' .. ARGV[2] .. ' ' .. epoch .. ' ' ..
		string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)) .. '\n' .. ARGV[3] .. ' ' .. ARGV[3])
	local finished = string.format('%.0f', (m[5] or 0) + ARGV[3] - m[1]) -- the seqs are no backlog
	redis.call('HSET', KEYS[1], 'seq', ARGV[3], 'finished', finished, 'skipped', (m[4] and m[4] .. ',' or '') .. ARGV[2] .. '-' .. ARGV[3] .. '@' .. epoch .. ARGV[4])
	return { 'ok' }
end

local camp, damage = whole(KEYS[3], 'state', 'from', 'user_campaign', 'packets', 'total', 'loaded', 'loaded_amount')
local share = redis.call('HMGET', KEYS[3], 'share', 'share_amount') -- absent if the campaign has only one place
local withheld, amount = withheld_of(KEYS[3], KEYS[5])
if damage or not withheld then
	return damage or amount
end
local named = {}
-- Redis may have lost that the campaign was opened: it had all its packets, or it could not have granted one.
local opens = camp[1] == 'loading' and camp[6] == (share[1] or camp[4]) and camp[7] == (share[2] or camp[5])
if camp[1] ~= 'open' and camp[1] ~= 'paused' and not opens then
	return { 'state', camp[1] or '' }
end
local dt = string.format('%.0f', ARGV[6] - camp[2])
local lines, fields, held, taken = {}, {}, {}, {}
local users = {}
for i = 7, #ARGV, 5 do
	users[#users + 1] = ARGV[i + 2]
end
local receipts = redis.call('HMGET', KEYS[4], unpack(users))
redis.call('LTRIM', KEYS[5], 0, -1)
for k = 6, #KEYS, 2 do
	redis.call('LTRIM', KEYS[k], 0, -1)
	redis.call('LREM', KEYS[k + 1], 1, '') -- removes nothing; fails before the first write if the right is missing
	redis.call('LTRIM', KEYS[k + 1], 0, -1)
	taken[k] = {}
end
for i, user in ipairs(users) do
	held[user] = receipts[i]
end
-- take marks a packet of the stocks as granted, if it is among the first most packets; 0 for all.
local function take(packet, most)
	for k = 6, #KEYS, 2 do
		local place = redis.call('LPOS', KEYS[k], packet, 'MAXLEN', most)
		if place then
			table.insert(taken[k], { place, string.match(packet, ' (%d+)$') + 0, packet })
			return true
		end
	end
end
-- insert adds a receipt to a user's receipts, which are in ascending order of time: see grab.lua. A grant that gets a new
-- seq comes after later ones.
local function insert(all, receipt)
	local list, at = {}, nil
	for line in string.gmatch(all, '[^\n]+') do
		list[#list + 1] = line
		if not at and tonumber(string.match(line, '^%d+ %d+ %d+ (%d+)') or 0) > tonumber(dt) then
			at = #list
		end
	end
	table.insert(list, at or #list + 1, receipt)
	return table.concat(list, '\n')
end
for i = 7, #ARGV, 5 do
	local packet, request = ARGV[i] .. ' ' .. ARGV[i + 1], ARGV[i + 3]
	-- Lost packets are near the front, or already withheld. So a search of a whole stock, which may be long, is the last.
	if not take(packet, 4096) then
		if redis.call('LPOS', KEYS[5], packet) then
			named[#named + 1] = packet
			amount = amount - ARGV[i + 1]
		elseif not take(packet, 0) then
			return { 'gone', ARGV[i] }
		end
	end
	local user = ARGV[i + 2]
	local receipt = packet .. ' ' .. string.format('%.0f', ARGV[2] + #lines) .. ' ' .. dt .. ' ' .. request
	held[user] = held[user] and insert(held[user], receipt) or receipt
	lines[#lines + 1] = packet .. ' ' .. user .. ' ' .. (request ~= '' and request or '-') .. ' ' .. ARGV[i + 4]
end
for k, t in pairs(taken) do
	table.sort(t, function(a, b) return a[1] < b[1] end)
	if #t > 0 then
		t.marks, damage = marks_of(KEYS[k + 1])
		if not t.marks then
			return damage
		end
	end
end
redis.call('XADD', KEYS[2], '*', '3', 'grant ' .. ARGV[4] .. ' ' .. ARGV[2] .. ' ' .. epoch .. ' ' .. ARGV[6] .. ' ' .. ARGV[5] ..
	'\n' .. table.concat(lines, '\n'))
local most, above = tonumber(camp[3]), 0
for i, user in ipairs(users) do
	if held[user] then -- once for each user
		local _, had = string.gsub(receipts[i] or '', '[^\n]+', '')
		local _, has = string.gsub(held[user], '[^\n]+', '')
		above = above + math.max(0, has - most) - math.max(0, had - most)
		fields[#fields + 1] = user
		fields[#fields + 1] = held[user]
		held[user] = nil
	end
end
if above > 0 then
	add_above(KEYS[3], above)
end
redis.call('HSET', KEYS[4], unpack(fields))
if opens then
	redis.call('HSET', KEYS[3], 'state', 'open')
end
for k, t in pairs(taken) do
	if #t > 0 and t[#t][1] == #t - 1 then -- the packets at the front: the sums stay as they are
		redis.call('LTRIM', KEYS[k], #t, -1)
	elseif #t > 0 then
		shift_marks(KEYS[k + 1], t.marks, redis.call('LLEN', KEYS[k]), t)
		for _, packet in ipairs(t) do
			redis.call('LREM', KEYS[k], 1, packet[3])
		end
	end
end
for _, packet in ipairs(named) do
	redis.call('LREM', KEYS[5], 1, packet)
end
if #named > 0 then
	set_withheld(KEYS[3], withheld - #named, amount)
end
redis.call('HSET', KEYS[1], 'seq', ARGV[3])
return { 'ok' }
