-- answers: stores how often a server has given each answer to a campaign's grabs, in a line of the server at the
-- campaign's home. The counts are absolute, so the next write repairs a line that Redis has lost.
--
-- KEYS  1 campaign  2 answers
-- ARGV  1 name of the line  2 the last time, by this clock, when the server knows that it wrote the line, ms; 0 for
--       never  3 the counts: "granted=5 sold_out=70"
-- Reply "gone" if Redis does not have the campaign; "folded" if another server has folded the line; else "stored". Then
--       the time of this call, ms. Only "stored" changes anything.
-- Cost  O(1); O(lines) at the first write of a line
-- First write HSET: it grows memory. The first write of a line adds up the lines that were silent for an hour, and
--       replaces at most 1,000 of them by one field, ended.
-- Repeat changes only the time.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local text = string.format('%.0f', now)

-- silent reports whether a line of that time belongs to no server any more. A time that is far ahead counts as old: the
-- clock was corrected since.
local function silent(at)
	return math.abs(now - at) > 3600000
end

local known = redis.call('HLEN', KEYS[1]) > 0
local has = redis.call('HGET', KEYS[2], ARGV[1])
if not known then
	return { 'gone', text }
end
if not has and ARGV[2] ~= '0' and silent(ARGV[2]) then
	return { 'folded', text }
end
local write, old, sums, names = { ARGV[1], text .. ' ' .. ARGV[3] }, {}, {}, {}
local all = has and {} or redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
	local ended = all[i] == 'ended'
	local fold = not ended and #old < 1000 and silent(string.match(all[i + 1], '^%d+') or 0)
	if fold then
		table.insert(old, all[i])
	end
	if fold or ended then
		for name, n in string.gmatch(all[i + 1], '([%w_]+)=(%d+)') do
			if not sums[name] then
				table.insert(names, name)
			end
			sums[name] = (sums[name] or 0) + n
		end
	end
end
if #old > 0 then
	table.sort(names)
	local value = text
	for _, name in ipairs(names) do
		value = value .. ' ' .. name .. '=' .. string.format('%.0f', sums[name])
	end
	write[3], write[4] = 'ended', value
end
redis.call('HSET', KEYS[2], unpack(write))
if #old > 0 then
	redis.call('HDEL', KEYS[2], unpack(old))
end
return { 'stored', text }
