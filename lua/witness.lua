-- witness: writes the witness line of a process that reports grants of the shard to users. It returns what the
-- process needs to know for that.
--
-- KEYS  1 meta  2 witnesses
-- ARGV  1 the process  2 1 if the process answers users, else 0: then nothing is written
-- Reply "gone" if Redis has lost the shard, and nothing is written; else "open" or "frozen"; the epoch; settled, the
--       event up to which every declared group has finished; the attempt to restore the shard, in the format of
--       mend.lua, "" for none; the epoch of the attempt to which the process has sent all its evidence, 0 for none;
--       the highest number of replicas that the primary has had; 1 if the process had no line, else 0
-- Cost  O(1); O(witnesses) at the first call of a process
-- First write HSET of a field of 60 bytes. It runs when Redis is out of memory too. When a new process writes its
--       line on an open shard, lines older than a minute are deleted.
-- Repeat changes only the time.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local m = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'frozen', 'settled', 'mend', 'replicas')
local line = redis.call('HGET', KEYS[2], ARGV[1])
if not m[1] or not m[2] then
	return { 'gone' }
end
local text = string.format('%.0f', now)
local sent = line and string.match(line, ' (%d+)$') or '0'
if ARGV[2] == '1' then
	-- On a frozen shard a line keeps a time that is ahead: it is compared with that of the last write before the freeze.
	local before = m[3] and line and string.match(line, '^%d+') or '0'
	redis.call('HSET', KEYS[2], ARGV[1], (tonumber(before) > now and before or text) .. ' ' .. sent)
	if not m[3] then
		redis.call('HSET', KEYS[1], 'watched', text)
	end
end
if ARGV[2] == '1' and not line and not m[3] then -- on a frozen shard, the recoverer waits for silent processes
	local all = redis.call('HGETALL', KEYS[2])
	for i = 1, #all, 2 do
		if tonumber(string.match(all[i + 1], '^%d+') or 0) < now - 60000 then
			redis.call('HDEL', KEYS[2], all[i])
		end
	end
end
return { m[3] and 'frozen' or 'open', m[2], m[4] or '0', m[5] or '', sent, m[6] or '0', line and '0' or '1' }
