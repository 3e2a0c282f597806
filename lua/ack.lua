-- ack: marks events as done by a sink, counts the newly marked grants of each campaign, and acks the entries that the
-- caller has finished.
--
-- KEYS  1 events  2 meta  3... the campaigns of the events, then the chunks of the sink's done bitmap
-- ARGV  1 group  2 number of campaigns  3 number of marks  4... the marks: number of the key, first bit, last bit, seq of
--       bit 0, number of the campaign's key (0 for none); then the ids to ack
-- Reply how many entries this call acked; fewer than requested if some were already acked
-- Cost  O(marks + campaigns + ids)
-- First write the bits: SETRANGE and SETBIT may grow memory. The script checks all types before.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat changes nothing.
-- The script does not check the owner of an entry. A worker that has lost its lease without noticing may ack an entry
-- that another worker now has. That is correct, because an entry is acked only when all its events are done. When the
-- other worker renews its lease, it learns that the entry is lost. A dead letter from the other worker for this entry
-- is refused, because the entry is not pending.

redis.call('XLEN', KEYS[1])
local floor = tonumber(redis.call('HGET', KEYS[2], 'done_floor') or 0)
local campaigns, ids = 2 + ARGV[2], 4 + 5 * ARGV[3]
for i = 3, campaigns do
	redis.call('HLEN', KEYS[i])
end
for i = campaigns + 1, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
local fresh = {}
for i = 4, ids - 1, 5 do
	local first, last, kept = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), floor - ARGV[i + 3]
	finish(KEYS[tonumber(ARGV[i])], first, last, kept, fresh, tonumber(ARGV[i + 4]))
end
add_done(3, campaigns, ARGV[1], fresh)
local acked = 0
for at = ids, #ARGV, 1000 do
	acked = acked + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, at, math.min(at + 999, #ARGV)))
end
return { tostring(acked) }
