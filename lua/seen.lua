-- seen: functions on events that processes have seen, included by other scripts. An event is written "epoch seq", and a
-- text that is none counts as no event. The later event has the later epoch, or the higher seq of the same epoch.

local function is_later(a, b)
	local a_epoch, a_seq = string.match(a, '^(%d+) (%d+)$')
	local b_epoch, b_seq = string.match(b, '^(%d+) (%d+)$')
	a_epoch, a_seq = tonumber(a_epoch or 0), tonumber(a_seq or 0)
	b_epoch, b_seq = tonumber(b_epoch or 0), tonumber(b_seq or 0)
	return a_epoch > b_epoch or a_epoch == b_epoch and a_seq > b_seq
end

local function latest(a, b)
	return is_later(b, a) and b or a
end

