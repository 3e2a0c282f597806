-- marks: functions on the sums of a stock, included by scripts that take packets out of the middle of a stock. See
-- left.lua for what the sums are.

-- marks_of returns the sums of a stock that is not empty, each "packets amount". It returns nil and an error if one of
-- them is damaged.
local function marks_of(sums)
	local marks = redis.call('LRANGE', sums, 0, -1)
	if #marks == 0 then
		return nil, redis.error_reply('HBDAMAGED the list ' .. sums .. ' is empty; nothing was changed now')
	end
	for _, mark in ipairs(marks) do
		if not string.match(mark, '^%d+ %d+$') then
			return nil, redis.error_reply('HBDAMAGED the list ' .. sums .. ' has an element that is no sum; nothing was changed now')
		end
	end
	return marks
end

-- shift_marks adapts the sums to packets that left the stock, as if they had been granted before the packets that stay in
-- front of them. taken has a { place, amount } for each, by ascending place. places count from 0, in the stock of the
-- given length before the packets left. So two successive sums never get further apart. It runs after all checks: marks
-- are from marks_of.
local function shift_marks(sums, marks, length, taken)
	local granted = string.match(marks[#marks], '^%d+') - length
	local last, after, amount, i = taken[#taken], 0, 0, #taken
	local shifted, count = {}, 0
	while count < #marks and string.match(marks[count + 1], '^%d+') - granted <= last[1] do
		count = count + 1
	end
	for at = count, 1, -1 do
		local n, sum = string.match(marks[at], '^(%d+) (%d+)$')
		while i > 0 and taken[i][1] >= n - granted do -- these packets lay behind the sum
			after, amount, i = after + 1, amount + taken[i][2], i - 1
		end
		shifted[#shifted + 1] = string.format('%.0f %.0f', n + after, sum + amount)
	end
	if count > 0 then
		redis.call('LTRIM', sums, count, -1)
	end
	for first = 1, #shifted, 5000 do -- unpack takes fewer than 8,000 values
		redis.call('LPUSH', sums, unpack(shifted, first, math.min(first + 4999, #shifted)))
	end
end
