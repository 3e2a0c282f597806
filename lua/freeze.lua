-- freeze: freezes a shard if it was opened for a different server, or if its server was promoted since then. It also
-- freezes a shard if a process has seen an event that the shard lacks, or that an opening has skipped. It stores the
-- highest seq that any process has seen. It also runs on a shard that is not open.
--
-- KEYS  1 meta
-- ARGV  1 run id of the server  2 highest seq that the caller has seen  3 the server's master_replid if it was ever
--       promoted, else ""  4 a seq that the caller saw before an opening skipped it, 0 for none  5 value of meta's
--       field skipped from which the caller computed 4; if the value has changed, 4 is ignored
-- Reply "open", or "frozen"; ms since the freeze; the shard's seq and epoch, each "" if it is missing; the highest
--       seq that any process has seen; the highest seq that an opening skipped although a process had seen it, or 0
-- Cost  O(1)
-- First write HSET of a few bytes. It runs when Redis is out of memory too.
-- Repeat does not freeze the shard again; the time of the first freeze stays.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local m = redis.call('HMGET', KEYS[1], 'opened', 'frozen', 'seq', 'seen', 'epoch', 'history', 'skipped', 'late')
local seen = math.max(tonumber(m[4] or 0), tonumber(ARGV[2]))
local late = tonumber(m[8] or 0)
if m[7] and m[7] == ARGV[5] then
	late = math.max(late, tonumber(ARGV[4]))
end
local since = m[2] or string.format('%.0f', now)
if not m[2] and m[1] == ARGV[1] and (ARGV[3] == '' or ARGV[3] == m[6]) and seen <= tonumber(m[3] or 0) and late == 0 then
	return { 'open', '0', m[3] or '', m[5] or '', string.format('%.0f', seen), '0' }
end
if m[3] or seen > 0 then -- an unused Redis stays empty
	redis.call('HSET', KEYS[1], 'frozen', since, 'seen', string.format('%.0f', seen))
end
if late > 0 then
	redis.call('HSET', KEYS[1], 'late', string.format('%.0f', late))
end
return { 'frozen', string.format('%.0f', math.max(0, now - since)), m[3] or '', m[5] or '', string.format('%.0f', seen),
	string.format('%.0f', late) }
