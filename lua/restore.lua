-- restore: restores a decision about a campaign or a sink from the ledger, if the decision in Redis is older or
-- missing.
--
-- KEYS  1 the hash to which the decision belongs: campaign, sink, or the sink's campaigns  2 sink, if the decision is
--       about a campaign for a sink
-- ARGV  1 the field  2 the prefix of the fields by, why, at and rev  3 the value  4 by  5 why  6 at, in ms  7 rev
-- Reply "restored", or "same" if Redis has this decision or a newer one, or if the campaign is not in a state to
--       pause or resume
-- Cost  O(1)
-- First write HSET: it grows memory, by a few fields. It runs when Redis is out of memory too, as open does.
-- Repeat answers "same".

local has = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[2] .. 'rev')
if KEYS[2] then
	redis.call('HLEN', KEYS[2])
end
if (tonumber(has[2]) or 0) >= tonumber(ARGV[7]) then
	return { 'same' }
end
if ARGV[1] == 'state' and has[1] ~= 'open' and has[1] ~= 'paused' then
	return { 'same' }
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], ARGV[2] .. 'by', ARGV[4], ARGV[2] .. 'why', ARGV[5], ARGV[2] .. 'at', ARGV[6],
	ARGV[2] .. 'rev', ARGV[7])
if KEYS[2] then
	redis.call('HINCRBY', KEYS[2], 'campaigns', 1)
end
return { 'restored' }
