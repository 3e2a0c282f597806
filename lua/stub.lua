-- stub: a function that replaces a campaign that Redis has lost, included by other scripts.

-- stub creates a hash for a missing campaign, because a lost campaign must not look as if it had never existed. The
-- caller sets its state.
local function stub(campaign)
	if redis.call('EXISTS', campaign) == 0 then
		redis.call('HSET', campaign, 'from', '0', 'to', '0', 'user_campaign', '1', 'user_day', '', 'user_hour', '',
			'fact_names', '', 'fact_limits', '', 'zone', '0:0', 'packets', '0', 'total', '0',
			'loaded', '0', 'loaded_amount', '0', 'hash', '-', 'revision', '-', 'durability', 'fast')
	end
end
