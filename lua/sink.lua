-- sink: pauses or resumes a sink for all workers, or limits its rate. It also pauses or resumes one campaign for the
-- sink.
--
-- KEYS  1 sink  2 controls  3 the sink's campaigns
-- ARGV  1 what to do: pause, resume, limit  2 who  3 why  4 grants a second, for limit: 0 for no limit, "" for the
--       worker's own setting  5 the campaign that is paused or resumed; "" for the whole sink  6 name of the decision
--       in controls
-- Reply "changed", or "same" if the sink had that state before; then the sink's hash, field by field
-- Cost  O(1)
-- First write HSET: it grows memory, by one small hash for each sink. It runs when Redis is out of memory too (see
--       newDrainScript): a pause may help in that situation.
-- Repeat answers "same", and the name and reason of the first call stay. But rev rises and the ledger gets the
--       decision again.

redis.call('HLEN', KEYS[1])
redis.call('HLEN', KEYS[2])
redis.call('HLEN', KEYS[3])
local paused = ARGV[1] == 'pause' and '1' or '0'
local changed
if ARGV[5] ~= '' then
	changed = decide(KEYS[3], KEYS[2], ARGV[6], ARGV[5] .. ':paused', ARGV[5] .. ':', '0', paused, ARGV[2], ARGV[3])
	redis.call('HINCRBY', KEYS[1], 'campaigns', 1) -- tells workers to read the sink's campaigns again
elseif ARGV[1] == 'limit' then
	changed = decide(KEYS[1], KEYS[2], ARGV[6], 'rate', 'limit_', '', ARGV[4], ARGV[2], ARGV[3])
else
	changed = decide(KEYS[1], KEYS[2], ARGV[6], 'paused', '', '0', paused, ARGV[2], ARGV[3])
end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, changed and 'changed' or 'same')
return reply
