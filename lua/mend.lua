-- mend: begins an attempt to restore a frozen shard. The attempt's epoch is already in the ledger.
--
-- KEYS  1 meta
-- ARGV  1 seq and 2 epoch that the caller found  3 the attempt, "epoch floor wrote token history": its epoch, the
--       event up to which Redis certainly had everything, the time of the last write before the freeze in ms, the
--       server's run id and master_replid
-- Reply "ok"; or "changed": the shard is not as the caller found it, or a later attempt has begun
-- Cost  O(1)
-- First write HSET of a field. It runs when Redis is out of memory too.
-- Repeat changes nothing. Evidence that witnesses sent to an earlier attempt stays. It is still valid, and the
--       witnesses may no longer exist.

local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'frozen', 'mend')
if m[4] == ARGV[3] and m[3] then
	return { 'ok' }
end
local last, mine = string.match(m[4] or '', '^%d+') or '0', string.match(ARGV[3], '^%d+')
if not m[3] or m[1] ~= ARGV[1] or m[2] ~= ARGV[2] or tonumber(last) >= tonumber(mine) then
	return { 'changed' }
end
local clock = redis.call('TIME')
redis.call('HSET', KEYS[1], 'mend', ARGV[3], 'asked', string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)))
return { 'ok' }
