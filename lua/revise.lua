-- revise: changes a campaign's revision after packets may have returned to its stock. The new revision invalidates
-- filters and what producers remember about empty places.
--
-- KEYS  1 meta  2 campaign  3 filter
-- ARGV  1 the attempt, see mend.lua
-- Reply "ok"; or "changed": another attempt restores the shard
-- Cost  O(parts of the filter)
-- First write HSET of a field. It runs when Redis is out of memory too.
-- Repeat changes nothing.

local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend')
local has = redis.call('HMGET', KEYS[2], 'revision')
redis.call('HLEN', KEYS[3])
if not m[1] or m[2] ~= ARGV[1] then
	return { 'changed' }
end
if has[1] then
	redis.call('HSET', KEYS[2], 'revision', string.gsub(has[1], '%.r%d+$', '') .. '.r' .. string.match(ARGV[1], '^%d+'))
	redis.call('DEL', KEYS[3])
end
return { 'ok' }
