-- found: records the deployment that owns a shard or the key prefix. If there is a different owner, it returns the
-- difference.
--
-- KEYS  1 meta, or the key of the prefix  2 with meta, the shard's events
-- ARGV  1 deployment id  2 number of shards  3 founding: the random text that is also in the ledger  4... the other
--       fields: name, value, name, value and so on
-- Reply "ok"; "differs", the field, its value in Redis; or "lost" if meta is missing but the stream has had entries:
--       with a new meta, seqs would restart, and the old done bits would make every sink skip the new events
-- Cost  O(1)
-- First write HSET: it grows memory, by one small hash. It runs when Redis is out of memory too, as open does.
-- Repeat answers "ok".

local names = { 'deployment', 'shards', 'founding' }
local has = redis.call('HMGET', KEYS[1], unpack(names))
if redis.call('EXISTS', KEYS[1]) == 1 then
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
-- Redis searches a small hash from its beginning, so the fields that every grab reads are set first.
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('HSET', KEYS[1], 'deployment', ARGV[1], 'shards', ARGV[2], 'founding', ARGV[3])
return { 'ok' }
