-- ack: marks events as done by a sink, and acks the entries that the caller has finished.
--
-- KEYS  1 events  2... the chunks of the sink's done bitmap
-- ARGV  1 group  2 number of marks  3... the marks: number of the key, first bit, last bit; then the ids to ack
-- Reply how many entries this call acked; fewer than requested if some were already acked
-- Cost  O(marks + ids)
-- First write the bits: SETRANGE and SETBIT may grow memory. The script checks all types before.
--       It runs when Redis is out of memory too: see newDrainScript.
-- Repeat changes nothing.
-- The script does not check the owner of an entry. A worker that has lost its lease without noticing may ack an entry
-- that another worker now has. That is correct, because an entry is acked only when all its events are done. When the
-- other worker renews its lease, it learns that the entry is lost. A dead letter from the other worker for this entry
-- is refused, because the entry is not pending.

redis.call('XLEN', KEYS[1])
for i = 2, #KEYS do
	redis.call('STRLEN', KEYS[i])
end
local marks = tonumber(ARGV[2])
for m = 0, marks - 1 do
	set_bits(KEYS[tonumber(ARGV[3 + 3 * m])], tonumber(ARGV[4 + 3 * m]), tonumber(ARGV[5 + 3 * m]))
end
local acked = 0
for at = 3 + 3 * marks, #ARGV, 1000 do
	acked = acked + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, at, math.min(at + 999, #ARGV)))
end
return { tostring(acked) }
