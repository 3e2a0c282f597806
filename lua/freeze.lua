-- freeze: freezes a shard if it was opened for a different server, or if its server was promoted since then. It also
-- freezes a shard if a process has seen a later event than the shard's last one (see guard.lua), or an event that an
-- opening has lost, or if the ledger refuses the shard's epoch. It stores the latest event that any process has seen. It
-- also runs on a shard that is not open.
--
-- KEYS  1 meta
-- ARGV  1 run id of the server  2 latest event that the caller has seen, "epoch seq"  3 the server's master_replid if
--       it was ever promoted, else ""  4 a seq of the range skipped by the opening that lost an event which the caller
--       had seen before: the event's seq, or the range's last if that is lower; 0 for none  5 value of meta's field
--       skipped from which the caller computed 4; if the value has changed, 4 is ignored  6 the lowest epoch whose
--       events the ledger takes; 0 if the caller does not know it
-- Reply "open", or "frozen"; ms since the freeze; the shard's seq and epoch, each "" if it is missing; epoch and seq
--       of the latest event that any process has seen; the highest of the seqs in ARGV 4, or 0
-- Cost  O(1)
-- First write HSET of a few bytes. It runs when Redis is out of memory too.
-- Repeat does not freeze the shard again; the time of the first freeze stays.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local m = redis.call('HMGET', KEYS[1], 'opened', 'frozen', 'seq', 'seen', 'epoch', 'history', 'skipped', 'late')
local seen = latest(ARGV[2], m[4] or '')
local epoch, seq = string.match(seen, '^(%d+) (%d+)$')
local late = tonumber(m[8] or 0)
if m[7] and m[7] == ARGV[5] then
	late = math.max(late, tonumber(ARGV[4]))
end
local since = m[2] or string.format('%.0f', now)
if not m[2] and m[1] == ARGV[1] and (ARGV[3] == '' or ARGV[3] == m[6]) and
	not is_later(seen, (m[5] or '0') .. ' ' .. (m[3] or '0')) and late == 0 and tonumber(m[5] or 0) >= tonumber(ARGV[6]) then
	return { 'open', '0', m[3] or '', m[5] or '', epoch, seq, '0' }
end
if m[3] or seen ~= '0 0' then -- an unused Redis stays empty
	redis.call('HSET', KEYS[1], 'frozen', since, 'seen', seen)
end
if late > 0 then
	redis.call('HSET', KEYS[1], 'late', string.format('%.0f', late))
end
return { 'frozen', string.format('%.0f', math.max(0, now - since)), m[3] or '', m[5] or '', epoch, seq,
	string.format('%.0f', late) }
