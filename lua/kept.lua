-- kept: removes a decision from those that wait for the ledger, because the ledger has it. A newer decision stays.
--
-- KEYS  1 controls
-- ARGV  1 name of the decision  2 its text, as the caller has read it
-- Reply "kept", or "other" if the stored decision is a different one, or is missing
-- Cost  O(1)
-- First write HDEL: it frees memory.
-- Repeat answers "other".

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
	return { 'other' }
end
redis.call('HDEL', KEYS[1], ARGV[1])
return { 'kept' }
