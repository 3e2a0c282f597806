-- open: opens a frozen shard for the server on which the script runs. The epoch rises, and new seqs are above every
-- known seq. An entry of kind epoch records the skipped seqs. Fences of claims rise by 2^20.
--
-- KEYS  1 meta  2 events  3 evidence  4... the claims of the sinks, then the campaigns that stay frozen
-- ARGV  1 token of the server  2 seq and 3 epoch that the caller found, "" for a shard without meta  4 the new epoch
--       5 last seq that is skipped  6 highest known seq  7 latest event that callers had seen when the caller looked,
--       "epoch seq"  8 the master_replid that the caller found  9 the late seq that the caller found, 0 for none, see
--       freeze.lua  10 1 if an operator has accepted the loss: a star then marks the ranges that this opening and its
--       attempts have skipped, and the range with the late seq
--       11 the openings that are not yet in the ledger, see Unrecorded in internal/store; "" if there are none
--       12 number of texts of evidence that the caller has read  13 number of sinks  14... for each campaign its
--       number of shards; then the fields that record the owner of a shard without meta: name, value, name, value and
--       so on
-- Reply "open"; or "changed" if the shard is no longer as the caller found it. It is an error if the skipped range
--       would be empty, or would end below the highest known seq, or if a caller has seen the new epoch or a later one
-- Cost  O(sinks + campaigns + ranges that were skipped before)
-- First write XADD: it grows memory, by one entry and a stub for each missing campaign. The script checks everything
--       before it.
--       It runs when Redis is out of memory too: a frozen shard refuses acks and trims, which free memory.
-- Repeat answers "open" and changes nothing.

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'opened', 'frozen', 'skipped', 'seen', 'late', 'evidence', 'finished')
redis.call('XLEN', KEYS[2])
local sinks = tonumber(ARGV[13])
redis.call('LLEN', KEYS[3])
for i = 4, #KEYS do
	redis.call('HLEN', KEYS[i])
end
if m[2] == ARGV[4] and m[3] == ARGV[1] and not m[4] then
	return { 'open' }
end
if (m[1] or '') ~= ARGV[2] or (m[2] or '') ~= ARGV[3] or is_later(m[6] or '', ARGV[7]) or
	tonumber(m[7] or 0) ~= tonumber(ARGV[9]) or tonumber(m[8] or 0) > tonumber(ARGV[12]) then
	return { 'changed' }
end
local first = string.format('%.0f', (m[1] or 0) + 1)
if tonumber(ARGV[5]) < tonumber(first) or tonumber(ARGV[5]) < tonumber(ARGV[6]) then
	return redis.error_reply('HBRANGE the opening would skip seqs ' .. first .. ' to ' .. ARGV[5] .. ', and event ' .. ARGV[6] .. ' is known')
end
if tonumber(string.match(ARGV[7], '^%d+')) >= tonumber(ARGV[4]) then
	return redis.error_reply('HBRANGE the opening would begin epoch ' .. ARGV[4] .. ', and a process has seen event ' ..
		string.gsub(ARGV[7], '^(%d+) (%d+)$', '%2 of epoch %1'))
end
redis.call('XADD', KEYS[2], '*', '2', 'epoch - ' .. first .. ' ' .. ARGV[4] .. ' ' .. now .. '\n' .. ARGV[5] .. ' ' .. ARGV[6])
for i = 4, 3 + sinks do
	redis.call('HINCRBY', KEYS[i], '#fence', '1048576')
end
for i = 4 + sinks, #KEYS do
	stub(KEYS[i])
	redis.call('HSET', KEYS[i], 'state', 'frozen')
	if ARGV[10 + i - sinks] ~= '1' then
		redis.call('HSET', KEYS[i], 'places', ARGV[10 + i - sinks]) -- the home's stub tells on which shards the campaign is
	end
end
if not m[1] then
	redis.call('HSET', KEYS[1], unpack(ARGV, 11 + #KEYS - sinks))
end
local skipped = {}
for from, last, epoch, accepted in string.gmatch(m[5] or '', '(%d+)-(%d+)@(%d+)(%*?)') do
	if tonumber(epoch) > tonumber(m[2] or 0) then -- by an attempt that has become this opening
		epoch, accepted = ARGV[4], ARGV[10] == '1' and '*' or accepted
	end
	if tonumber(from) <= tonumber(ARGV[9]) and tonumber(ARGV[9]) <= tonumber(last) then
		accepted = '*'
	end
	skipped[#skipped + 1] = from .. '-' .. last .. '@' .. epoch .. accepted
end
skipped[#skipped + 1] = first .. '-' .. ARGV[5] .. '@' .. ARGV[4] .. (ARGV[10] == '1' and '*' or '')
redis.call('HSET', KEYS[1], 'seq', ARGV[5], 'epoch', ARGV[4], 'opened', ARGV[1], 'history', ARGV[8],
	'finished', string.format('%.0f', (m[9] or 0) + ARGV[5] - (m[1] or 0)), 'skipped', table.concat(skipped, ','),
	'watched', now)
-- replicas is deleted too, because it may be the number of an old primary.
redis.call('HDEL', KEYS[1], 'frozen', 'seen', 'late', 'replicas', 'mend', 'asked', 'evidence', 'unrestored')
redis.call('UNLINK', KEYS[3])
if ARGV[11] == '' then
	redis.call('HDEL', KEYS[1], 'unrecorded')
else
	redis.call('HSET', KEYS[1], 'unrecorded', ARGV[11])
end
return { 'open' }
