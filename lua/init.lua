-- init: marks a shard, or the whole prefix, as this deployment's, or tells whose it is.
--
-- KEYS  1 meta, or the key of the prefix
-- ARGV  1 schema version  2 deployment id  3 number of shards  4 this shard's number, or "all" for the prefix
-- Reply "ok", or "differs", the field, what Redis holds
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
redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'deployment', ARGV[2], 'shards', ARGV[3], 'shard', ARGV[4],
	'epoch', '1', 'seq', '0', 'finished', '0')
return { 'ok' }
