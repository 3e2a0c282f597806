-- lock: a named lock with one owner. A unique token identifies the owner.
--
-- KEYS  1 the lock
-- ARGV  1 what to do: take, renew, release  2 token  3 lease, ms
-- Reply take: "ok", or "held" and the rest of the owner's lease in ms renew, release: "ok", or "lost" if the token is
--       not the owner's
-- Cost  O(1)
-- First write SET: it grows memory, by one key that ends with its lease.
--       It runs when Redis is out of memory too (see newDrainScript): campaigns are refunded and removed from Redis
--       under a lock.
-- Repeat of take or renew by the owner renews the lease. A repeat of release answers "lost".

local owner = redis.call('GET', KEYS[1])
if ARGV[1] == 'take' then
	if owner and owner ~= ARGV[2] then
		return { 'held', string.format('%.0f', math.max(0, redis.call('PTTL', KEYS[1]))) }
	end
	redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
	return { 'ok' }
end
if owner ~= ARGV[2] then
	return { 'lost' }
end
if ARGV[1] == 'renew' then
	redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
else
	redis.call('DEL', KEYS[1])
end
return { 'ok' }
