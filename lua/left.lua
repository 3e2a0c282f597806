-- left: a function that counts the packets in a stock, included by other scripts.

-- left_of returns the number of packets in a stock and their sum. The list of sums has the number and sum of all
-- packets that were loaded up to each chunk. So left_of only adds up the packets that are left of one chunk. It
-- returns nil if stock and sums contradict each other.
local function left_of(stock, sums)
	local left, marks = redis.call('LLEN', stock), redis.call('LRANGE', sums, 0, -1)
	if left == 0 then
		return 0, 0
	end
	local packets, amount = string.match(marks[#marks] or '', '^(%d+) (%d+)$')
	local granted = (packets or 0) - left
	for _, mark in ipairs(granted >= 0 and marks or {}) do
		local n, sum = string.match(mark, '^(%d+) (%d+)$')
		if tonumber(n) >= granted then
			sum = amount - sum
			for _, packet in ipairs(tonumber(n) > granted and redis.call('LRANGE', stock, 0, n - granted - 1) or {}) do
				sum = sum + string.match(packet, ' (%d+)$')
			end
			return left, sum
		end
	end
end
