-- codes: stores codes of packets of a campaign, on the place to which the packets are dealt.
--
-- KEYS  1 campaign  2 codes
-- ARGV  1 hash of the plan  2 number of the first packet  3 difference between the numbers of successive packets
--       4... the codes of the first packet and the following packets on this place
-- Reply state, packets that have a code, hash of the plan in Redis; the codes were stored if that is ARGV[1]
-- Cost  O(packets)
-- First write HSET: it grows memory.
-- Repeat changes nothing.

local has, damage = whole(KEYS[1], 'state', 'hash')
local coded = redis.call('HLEN', KEYS[2])
if damage then
	return damage
end
if not has[1] or has[2] ~= ARGV[1] then
	return { has[1] or '', string.format('%.0f', coded), has[2] or '' }
end
for first = 4, #ARGV, 1000 do
	local fields = {}
	for i = first, math.min(first + 999, #ARGV) do
		fields[#fields + 1] = string.format('%.0f', ARGV[2] + (i - 4) * ARGV[3])
		fields[#fields + 1] = ARGV[i]
	end
	redis.call('HSET', KEYS[2], unpack(fields))
end
return { has[1], string.format('%.0f', redis.call('HLEN', KEYS[2])), has[2] }
