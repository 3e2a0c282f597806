-- release: ends a claim whose push was certainly not sent.
--
-- KEYS  1 claims
-- ARGV  1 claim id  2 fence
-- Reply "ok", or "fenced" if the claim was taken over or no longer exists
-- Cost  O(1)
-- First write HDEL; it frees memory.
-- Repeat answers "fenced", because the claim no longer exists.

local claim = redis.call('HGET', KEYS[1], ARGV[1])
if not claim or string.match(claim, '^%d+') ~= ARGV[2] then
	return { 'fenced' }
end
redis.call('HDEL', KEYS[1], ARGV[1])
return { 'ok' }
