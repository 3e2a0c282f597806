package audit

// Kind is a kind of difference.
type Kind string

// The kinds of differences, in the order in which reports show them.
const (
	Lost             Kind = "lost"               // granted, its group has finished it, and the ledger, or the remote that pays, does not have it
	DoubleCredit     Kind = "double_credit"      // the ledger paid one packet more than once
	Unfounded        Kind = "unfounded"          // stream, ledger or topic tell of a grant without a receipt
	Different        Kind = "different"          // the same packet with other facts
	OverHold         Kind = "over_hold"          // a user holds more packets than he may
	PacketTwice      Kind = "packet_twice"       // a packet stands twice in stock and receipts
	PacketMissing    Kind = "packet_missing"     // a packet stands in neither
	PacketUnknown    Kind = "packet_unknown"     // a number that the campaign does not have
	NotPlanned       Kind = "not_planned"        // an amount that is not the planned one
	CounterDrift     Kind = "counter_drift"      // a campaign's counts do not fit its stock and receipts
	FundingDiffers   Kind = "funding_differs"    // Redis and ledger disagree on what a campaign was funded with
	LedgerUnbalanced Kind = "ledger_unbalanced"  // the ledger does not agree with itself
	CampaignMissing  Kind = "campaign_missing"   // a campaign is in Redis or in the ledger only
	CampaignBroken   Kind = "campaign_broken"    // a campaign's keys can't be read, or are there in part
	SeqGap           Kind = "seq_gap"            // seqs that stand for nothing
	DuplicateSeq     Kind = "duplicate_seq"      // one seq stands for two grants
	SeqBeyond        Kind = "seq_beyond"         // a receipt has a seq above the shard's last
	AfterClose       Kind = "after_close"        // a grant after its campaign's close
	StreamGap        Kind = "stream_gap"         // events are missing from the stream, or come twice
	UnreadableEntry  Kind = "unreadable_entry"   // an entry of the stream can't be decoded
	GroupMissing     Kind = "group_missing"      // a shard's consumer group does not exist
	MissingInTopic   Kind = "missing_in_topic"   // granted, its group has finished it, and the topic does not have it
	CodeDiffers      Kind = "code_differs"       // a coupon's code is missing, or not the same everywhere
	DuplicateInTopic Kind = "duplicate_in_topic" // the topic has one grant more than once
	MalformedRecord  Kind = "malformed_record"   // records that claim to be grants and can't be read
	DeadLetter       Kind = "dead_letter"        // set aside by a sink's group and not in that sink
	InQuarantine     Kind = "quarantined"        // contradicts the ledger; a person decides
	OpenClaim        Kind = "open_claim"         // a push that nobody will finish
)

// kindOrder lists every kind with what to do about it.
var kindOrder = []struct {
	kind Kind
	next string
}{
	{Lost, "replay these grants (hongbao replay NAME --to balance): the ledger, or the remote, settles each once"},
	{DoubleCredit, "stop settling; the unique key (campaign, packet) is broken or gone: look at the database by hand"},
	{Unfounded, "if Redis lost writes, put them back from the ledger; otherwise find out who can write to the stream, the ledger or the topic"},
	{Different, "the ledger's version was paid; compare both with the stream; after a loss in Redis the packet was dealt twice"},
	{OverHold, "somebody wrote to Redis by hand or the limit was changed: pause the campaign, look at the user's receipts"},
	{PacketTwice, "pause the campaign at once: the packet may be dealt again; take it out of the stock or settle who keeps it"},
	{PacketMissing, "pause the campaign; a packet was lost from Redis: put back what ledger and topic know"},
	{PacketUnknown, "the stock was not loaded from this plan, or written by hand: pause the campaign"},
	{NotPlanned, "the stock was not loaded from this plan, or altered: pause the campaign; the ledger refuses these amounts"},
	{CounterDrift, "somebody wrote to the campaign's keys by hand: pause it, correct the counts from stock and receipts"},
	{FundingDiffers, "the campaign was loaded with another specification than the ledger's: pause it"},
	{LedgerUnbalanced, "stop settling; somebody wrote to the database by hand: restore it or correct it with a person's decision"},
	{CampaignMissing, "create it in the ledger, or put it back into Redis from the ledger"},
	{CampaignBroken, "pause the campaign; its keys were written by hand or lost in part"},
	{SeqGap, "events are lost from Redis: freeze the shard, put back what ledger and topic know"},
	{DuplicateSeq, "Redis went back in time: freeze the shard, put back what ledger and topic know, raise the epoch"},
	{SeqBeyond, "Redis went back in time or its meta key was altered: freeze the shard before the seqs are given out again"},
	{AfterClose, "the refund may have been posted without it: stop the refund, look at the campaign's state by hand"},
	{StreamGap, "somebody deleted from the stream: replay the seqs from the ledger or the receipts to every sink"},
	{UnreadableEntry, "a foreign or damaged entry; the workers set it aside as a dead letter: find out who can write to the stream"},
	{GroupMissing, "start a worker of the group: it makes the group and reads from the beginning"},
	{MissingInTopic, "replay these grants to the topic (hongbao replay --to kafka --missing)"},
	{CodeDiffers, "the ledger's code counts: hongbao campaign load puts back what Redis lacks; tell users whom the topic gave another one"},
	{DuplicateInTopic, "subscribers drop it by (shard, seq); find out which writer bypassed the publisher"},
	{MalformedRecord, "find out who writes to the topic"},
	{DeadLetter, "mend the cause and requeue it (hongbao dead requeue), or drop it with a reason (hongbao dead drop)"},
	{InQuarantine, "decide and resolve it (hongbao quarantine resolve); docs/ledger.md has each reason"},
	{OpenClaim, "its events are finished: decide the dead letters among them first, then look at the claim with HGETALL and remove it"},
}
