-- touch: reads fields of a hash, and writes the first one again with the same value. WAIT and WAITAOF wait for the last
-- write of their connection. So after touch, on the same connection, they wait for all writes before it, too.
--
-- KEYS  1 a hash
-- ARGV  1 to 128 fields
-- Reply the value of each field, "" if it is absent
-- Cost  O(fields)
-- First write HSET of a value of the same size. It runs when Redis is out of memory too. There is no write if the first
--       field is absent.
-- Repeat writes again, and changes nothing.

local values = redis.call('HMGET', KEYS[1], unpack(ARGV))
if values[1] then
	redis.call('HSET', KEYS[1], ARGV[1], values[1])
end
for i = 1, #values do
	values[i] = values[i] or ''
end
return values
