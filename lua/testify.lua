-- testify: sends grants that a process has reported to users to an attempt to restore a frozen shard.
--
-- KEYS  1 meta  2 witnesses  3 evidence
-- ARGV  1 the process  2 epoch of the attempt  3 1 if the evidence of the process is complete with this call, else 0
--       4... grants, each text in the format of a stream entry's value
-- Reply "ok"; or "over" if the shard is not frozen, or a different attempt restores it
-- Cost  O(texts)
-- First write RPUSH: it grows memory. The list is deleted when the shard opens. It runs when Redis is out of memory
--       too: a frozen shard frees no memory.
-- Repeat stores the grants again, which does no harm.

local clock = redis.call('TIME')
local m = redis.call('HMGET', KEYS[1], 'frozen', 'mend')
redis.call('HLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
if not m[1] or string.match(m[2] or '', '^%d+') ~= ARGV[2] then
	return { 'over' }
end
if #ARGV > 3 then
	redis.call('RPUSH', KEYS[3], unpack(ARGV, 4))
	redis.call('HINCRBY', KEYS[1], 'evidence', #ARGV - 3)
end
if ARGV[3] == '1' then
	redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)) .. ' ' .. ARGV[2])
end
return { 'ok' }
