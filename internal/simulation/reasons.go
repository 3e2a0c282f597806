package simulation

// reasons says why few histories reach something: from the group and the item of the coverage, or the item's first
// word, or "* " and what follows its first word, to the reason.
var reasons = map[string]map[string]string{
	"answer": {
		"answers gone":      "only after a campaign has left Redis: its tests",
		"answers folded":    "only if a server is cut off from Redis for an hour: its tests",
		"codes":             "no campaign has codes: TestCodes of producer",
		"dead_letter":       "only while a sink refuses users",
		"resolve_letter":    "only while a sink refuses users",
		"once":              "no history uses package dedup: its tests",
		"purge_campaign":    "a campaign leaves Redis 24 h after its refund",
		"raise_done_floor":  "events stay in the stream for longer than a history",
		"touch empty":       "only if Redis loses a process's first registration before the replicas have it",
		"receipts closed":   "only if a user asks again after the campaign was closed",
		"rate":              "no sink has a rate limit",
		"xinfo -ERR":        "only while a shard has no stream, after FLUSHALL",
		"replay":            "a person replays in some histories only",
		"replayed":          "a person replays in some histories only",
		"* -NOSCRIPT":       "only the first call of a process after another server has the shard",
		"* -OOM":            "only while Redis is full, for scripts that then don't run",
		"* frozen":          "only a call that is under way while the shard freezes",
		"* -HBFROZEN":       "only a call that is under way while the shard freezes",
		"* -HBEPOCH":        "only a call that is under way while the shard opens again",
		"* changed":         "only if Redis loses writes again while a worker restores it",
		"* -NOGROUP":        "only after a file or a copy that lacks the group, which is made again at once",
		"close generations": "only a close while the packets of a top-up are being dealt",
		"grant_withheld":    "only if a withheld packet was told to a user, so its teller died within the lag of the copy",
		"release_withheld":  "only if a restore withheld packets of a campaign on one shard",
		"revise ok":         "only if events are missing that no source knows",
		"regrant gone":      "only if a lost top-up had granted packets already",
		"testify over":      "only if a process reports while the shard opens",
		"* paused":          "only while a campaign is paused",
		"* refused":         "only while a campaign changes its state",
	},
	"ledger": {
		"a promotion lost a refund": "only if a campaign is refunded within the lag of the standby",
	},
	"outcome": {
		"busy":      "the backlog of 60 users is below its limit: TestGrabAgainstModel",
		"refilling": "only between the announcement of a top-up and its packets, some milliseconds: TestGrabAgainstModel",
	},
	"http": {
		"POST 503 refilling": "only between the announcement of a top-up and its packets, some milliseconds",
	},
	"alarm": {
		"redis_down": "outages of Redis are mostly shorter than this alarm waits",
	},
	"person": {
		"hongbao campaign close --early": "only if one shard of a campaign is lost and another one is intact",
		"hongbao hole grant":             "only if a withheld packet was told to a user",
		"hongbao hole release":           "only if a restore withheld packets of a campaign on one shard",
		"hongbao replay --missing":       "only after a promotion of the ledger that lost grants",
		"a refund again":                 "only after a promotion of the ledger that lost the refund",
		"hongbao replay --to balance":    "only if receipts have no entry in the stream after an accepted loss, or by a deed",
		"hongbao":                        "only by some deeds of deliveries",
		"kafka-consumer-groups.sh":       "only if a subscriber's Run has ended because the topic was made again",
		"hongbao quarantine resolve":     "only if a settled packet came again with other facts",
	},
	"subscriber": {
		"died before its COMMIT": "only if a subscriber has a transaction within the time of the deed",
		"commit failed":          "only if a commit gets no answer for 2 s, and the generation still lives",
		"retry of the sink":      "only if a transaction of the subscribers' database fails",
	},
	"deed": {
		PacketTwice: "only in histories in which Redis loses nothing and sink kafka stays",
	},
	"grab error": {
		"broken":   "no key of a campaign is damaged: the tests of internal/store",
		"conflict": "no grab ends with it",
	},
}
