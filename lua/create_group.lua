-- create_group: creates a consumer group that starts at the first entry in the stream, and the stream if it does not
-- exist.
--
-- KEYS  1 events
-- ARGV  1 group
-- Reply "made", or "there" if the group exists already
-- Cost  O(groups)
-- First write XGROUP CREATE: it grows memory, but also runs when Redis is full.
-- Repeat answers "there".

if redis.call('EXISTS', KEYS[1]) == 1 then
	for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
		for i = 1, #info, 2 do
			if info[i] == 'name' and info[i + 1] == ARGV[1] then
				return { 'there' }
			end
		end
	end
end
redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0-0', 'MKSTREAM')
return { 'made' }
