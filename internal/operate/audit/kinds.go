package audit

// Kind is a kind of difference.
type Kind string

// The kinds of differences, in the order in which reports show them.
const (
	LedgerUnbalanced Kind = "ledger_unbalanced" // the ledger disagrees with itself
	DoubleCredit     Kind = "double_credit"     // the ledger paid one packet more than once
	// the group has finished the grant, but the ledger, or the remote that pays, does not have it
	Lost             Kind = "lost"
	RemotePaid       Kind = "remote_paid"        // the remote has paid a grant that a person decided not to pay
	Unfounded        Kind = "unfounded"          // stream, ledger or topic has a grant without a receipt
	Different        Kind = "different"          // two places have a packet with another user, amount, shard or seq
	OverHold         Kind = "over_hold"          // a user has more packets than allowed
	PacketTwice      Kind = "packet_twice"       // a packet is twice in stock and receipts
	PacketMissing    Kind = "packet_missing"     // a packet is in neither stock nor receipts
	PacketUnknown    Kind = "packet_unknown"     // a packet number that the campaign does not have
	NotPlanned       Kind = "not_planned"        // a packet's amount is not the planned one
	CounterDrift     Kind = "counter_drift"      // a campaign's counts do not match its stock and receipts
	FundingDiffers   Kind = "funding_differs"    // Redis and ledger disagree on a campaign's funding
	CampaignMissing  Kind = "campaign_missing"   // a campaign is in Redis or in the ledger only
	CampaignFrozen   Kind = "campaign_frozen"    // Redis has lost data of a campaign, and no one has ended it
	CampaignBroken   Kind = "campaign_broken"    // a campaign's keys can't be read, or are only partly there
	SeqGap           Kind = "seq_gap"            // some seqs belong to no event
	DuplicateSeq     Kind = "duplicate_seq"      // one seq belongs to two grants
	SeqBeyond        Kind = "seq_beyond"         // a receipt has a seq above the shard's last
	AfterClose       Kind = "after_close"        // a grant has a seq after its campaign's close
	StreamGap        Kind = "stream_gap"         // events are missing from the stream, or are in it twice
	UnreadableEntry  Kind = "unreadable_entry"   // an entry of the stream can't be decoded
	GroupMissing     Kind = "group_missing"      // a shard's consumer group does not exist
	MissingInTopic   Kind = "missing_in_topic"   // the group has finished the grant, but the topic does not have it
	CodeDiffers      Kind = "code_differs"       // a coupon's code is missing, or not the same everywhere
	DuplicateInTopic Kind = "duplicate_in_topic" // the topic has a grant more than once
	MalformedRecord  Kind = "malformed_record"   // records that claim to be grants and can't be read
	DeadLetter       Kind = "dead_letter"        // a grant is a dead letter, and its sink does not have it
	InQuarantine     Kind = "quarantined"        // a grant contradicts the ledger, and no person has decided about it
	OpenClaim        Kind = "open_claim"         // a push that no worker will complete
)
