package audit

import "github.com/hongbao-project/hongbao/internal/model"

// The kinds of differences, in the order in which reports show them.
const (
	LedgerUnbalanced model.DifferenceKind = "ledger_unbalanced" // the ledger disagrees with itself
	DoubleCredit     model.DifferenceKind = "double_credit"     // the ledger paid one packet more than once
	// the group has finished the grant, but the ledger, or the remote that pays, does not have it
	Lost             model.DifferenceKind = "lost"
	RemotePaid       model.DifferenceKind = "remote_paid"        // the remote has paid a grant that a person decided not to pay
	Unfounded        model.DifferenceKind = "unfounded"          // stream, ledger or topic has a grant without a receipt
	Different        model.DifferenceKind = "different"          // two places have a packet with another user, amount, shard or seq
	OverHold         model.DifferenceKind = "over_hold"          // a user has more packets than allowed
	PacketTwice      model.DifferenceKind = "packet_twice"       // a packet is twice in stock and receipts
	PacketMissing    model.DifferenceKind = "packet_missing"     // a packet is in neither stock nor receipts
	PacketUnknown    model.DifferenceKind = "packet_unknown"     // a packet number that the campaign does not have
	NotPlanned       model.DifferenceKind = "not_planned"        // a packet's amount is not the planned one
	CounterDrift     model.DifferenceKind = "counter_drift"      // a campaign's counts do not match its stock and receipts
	FundingDiffers   model.DifferenceKind = "funding_differs"    // Redis and ledger disagree on a campaign's funding
	CampaignMissing  model.DifferenceKind = "campaign_missing"   // a campaign is in Redis or in the ledger only
	CampaignFrozen   model.DifferenceKind = "campaign_frozen"    // Redis has lost data of a campaign, and no one has ended it
	CampaignBroken   model.DifferenceKind = "campaign_broken"    // a campaign's keys can't be read, or are only partly there
	SeqGap           model.DifferenceKind = "seq_gap"            // some seqs belong to no event
	DuplicateSeq     model.DifferenceKind = "duplicate_seq"      // one seq belongs to two grants
	SeqBeyond        model.DifferenceKind = "seq_beyond"         // a receipt has a seq above the shard's last
	AfterClose       model.DifferenceKind = "after_close"        // a grant has a seq after its campaign's close
	StreamGap        model.DifferenceKind = "stream_gap"         // events are missing from the stream, or are in it twice
	UnreadableEntry  model.DifferenceKind = "unreadable_entry"   // an entry of the stream can't be decoded
	GroupMissing     model.DifferenceKind = "group_missing"      // a shard's consumer group does not exist
	MissingInTopic   model.DifferenceKind = "missing_in_topic"   // the group has finished the grant, but the topic does not have it
	CodeDiffers      model.DifferenceKind = "code_differs"       // a coupon's code is missing, or not the same everywhere
	DuplicateInTopic model.DifferenceKind = "duplicate_in_topic" // the topic has a grant more than once
	MalformedRecord  model.DifferenceKind = "malformed_record"   // records that claim to be grants and can't be read
	DeadLetter       model.DifferenceKind = "dead_letter"        // a grant is a dead letter, and its sink does not have it
	InQuarantine     model.DifferenceKind = "quarantined"        // a grant contradicts the ledger, and no person has decided about it
	OpenClaim        model.DifferenceKind = "open_claim"         // a push that no worker will complete
)
