-- init: marks a shard, or the whole prefix, as this deployment's, or tells whose it is.
--
-- KEYS  1 meta, or the key of the prefix  2 with meta, the shard's events
-- ARGV  1 schema version  2 deployment id  3 number of shards  4 this shard's number, or "all" for the prefix
-- Reply "ok"; "differs", the field, what Redis holds; or "lost": the stream has had entries, so meta was there before. A new one would
--       give their seqs out again, and the done bits of the old events would keep the new ones from every sink
-- Cost  O(1)
-- First write HSET: it grows memory.
-- Repeat answers "ok".

local names = { 'schema', 'deployment', 'shards', 'shard' }
local has = redis.call('HMGET', KEYS[1], unpack(names))
if has[1] then
	for i, name in ipairs(names) do
		if has[i] ~= ARGV[i] then
			return { 'differs', name, has[i] or '' }
		end
	end
	return { 'ok' }
end
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
	local info = redis.call('XINFO', 'STREAM', KEYS[2])
	for i = 1, #info, 2 do
		if info[i] == 'last-generated-id' and info[i + 1] ~= '0-0' then
			return { 'lost' }
		end
	end
end
redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'deployment', ARGV[2], 'shards', ARGV[3], 'shard', ARGV[4],
	'epoch', '1', 'seq', '0', 'finished', '0')
return { 'ok' }
