-- grant_withheld: grants a packet that a restore has withheld to the user to whom it was reported, under a new seq.
--
-- KEYS  1 meta  2 events  3 campaign  4 receipts  5 withheld
-- ARGV  1 campaign  2 currency, "-" for none  3 packet  4 amount  5 user  6 request id, "" for none  7 traceparent,
--       "-" for none  8 how many packets of the campaign the user has on other shards, "" if the caller does not know
--       9 "above" if a person grants the packet even above the campaign's limit of packets per user, else ""
-- Reply "granted", seq, epoch, ms; "has" if the user already has the packet; or "refused" and the reason: the
--       campaign's state if it is neither open nor paused, "gone" if the packet is not withheld, "request" if the
--       request id has a different packet, "limit" if the user may have no more packets; for a campaign on several
--       shards also "places" if ARGV 8 is "", and "open" if it is not paused: the user may be getting packets there
-- Cost  O(withheld packets)
-- First write XADD: it grows memory, but also runs when Redis is full. The script checks everything before it.
-- Repeat answers "has".

local meta = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
local c, damage = whole(KEYS[3], 'state', 'from', 'user_campaign', 'revision')
local places = redis.call('HGET', KEYS[3], 'places')
local withheld, amount = withheld_of(KEYS[3], KEYS[5])
local held = redis.call('HGET', KEYS[4], ARGV[5])
local packet = ARGV[3] .. ' ' .. ARGV[4]
local place = redis.call('LPOS', KEYS[5], packet)
redis.call('XLEN', KEYS[2])
if damage or not withheld then
	return damage or amount
end
local count = tonumber(ARGV[8] == '' and '0' or ARGV[8])
for line in string.gmatch(held or '', '[^\n]+') do
	if string.match(line, '^%d+ %d+') == packet then
		return { 'has' }
	end
	if ARGV[6] ~= '' and string.sub(line, -#ARGV[6] - 1) == ' ' .. ARGV[6] then
		return { 'refused', 'request' }
	end
	count = count + 1
end
local refused = c[1] ~= 'open' and c[1] ~= 'paused' and (c[1] or 'missing') or not place and 'gone' or
	places and (ARGV[8] == '' and 'places' or c[1] == 'open' and 'open') or
	count >= tonumber(c[3]) and ARGV[9] ~= 'above' and 'limit'
if refused then
	return { 'refused', refused }
end
local clock = redis.call('TIME')
-- not before the window, if the clock of a promoted server is behind: no receipt has a negative time
local now = math.max(clock[1] * 1000 + math.floor(clock[2] / 1000), c[2])
local seq, ms = string.format('%.0f', meta[1] + 1), string.format('%.0f', now)
redis.call('XADD', KEYS[2], '*', '3', 'grant ' .. ARGV[1] .. ' ' .. seq .. ' ' .. meta[2] .. ' ' .. ms .. ' ' .. ARGV[2] .. '\n' ..
	packet .. ' ' .. ARGV[5] .. ' ' .. (ARGV[6] ~= '' and ARGV[6] or '-') .. ' ' .. ARGV[7])
local receipt = packet .. ' ' .. seq .. ' ' .. string.format('%.0f', now - c[2]) .. ' ' .. ARGV[6]
redis.call('HSET', KEYS[4], ARGV[5], held and held .. '\n' .. receipt or receipt)
redis.call('LREM', KEYS[5], 1, packet)
set_withheld(KEYS[3], withheld - 1, amount - ARGV[4])
if count >= tonumber(c[3]) then
	add_above(KEYS[3], 1)
end
-- The new revision invalidates an existing filter of the winners, which may lack this user.
redis.call('HSET', KEYS[3], 'revision', string.gsub(c[4], '%.r%d+$', '') .. '.r' .. seq)
redis.call('HSET', KEYS[1], 'seq', seq)
return { 'granted', seq, meta[2], ms }
