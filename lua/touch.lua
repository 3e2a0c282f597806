-- touch: reads fields of a hash and writes the first one again, unchanged. Since Redis 7.2, WAIT and WAITAOF cover only
-- what their own connection has written last. This write comes after all earlier writes of all connections, so a WAIT
-- after it, on the same connection, covers them too. Redis 7.0 waits for all writes before the last command, and needs
-- no write.
--
-- KEYS  1 a hash
-- ARGV  1 to 1000 fields
-- Reply the value of each field, "" if it is absent
-- Cost  O(fields)
-- First write HSET of a value of the same size. It runs when Redis is out of memory too. There is no write on Redis 7.0,
--       or if the first field is absent.
-- Repeat writes again, and changes nothing.

local values = redis.call('HMGET', KEYS[1], unpack(ARGV))
if values[1] and redis.REDIS_VERSION_NUM >= 0x070200 then
	redis.call('HSET', KEYS[1], ARGV[1], values[1])
end
for i = 1, #values do
	values[i] = values[i] or ''
end
return values
