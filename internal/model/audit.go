package model

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// AuditVerdict is the result of an audit.
type AuditVerdict string

// The verdicts. Agrees means that the audit found no difference in what it judged.
const (
	Agrees  AuditVerdict = "agrees"
	Differs AuditVerdict = "differs"
)

// AuditReport is what an audit found.
type AuditReport struct {
	Verdict AuditVerdict `json:"verdict" enum:"agrees,differs" doc:"'agrees' if the audit found no difference in what it compared, else 'differs'."`
	Started time.Time    `json:"started" doc:"Time when the audit started."`
	Seconds float64      `json:"seconds" doc:"Duration of the audit, in seconds."`
	// Quiet reports whether every consumer group had finished everything when the audit began to read.
	Quiet bool `json:"quiet" doc:"True if every sink had finished everything when the audit began to read."`
	// LeftOut says what was not compared, and why.
	LeftOut   []string         `json:"left_out" nullable:"false" doc:"What the audit did not compare, and why."`
	Total     Counts           `json:"total" doc:"The sums of all campaigns."`
	Campaigns []CampaignReport `json:"campaigns" nullable:"false" doc:"The counts of each campaign."`
	Shards    []ShardReport    `json:"shards" doc:"The state of each shard when the audit began."`
	// Found counts all differences of each kind. Differences lists them, up to Config.MaxListed of a kind.
	Found       map[DifferenceKind]int64 `json:"found" doc:"Number of all differences of each kind."`
	Differences []Difference             `json:"differences" nullable:"false" doc:"The differences, up to 100 of each kind."`
	// Remedies says what to do about each kind that was found. None of them moves money while the ledger disagrees with
	// itself.
	Remedies map[DifferenceKind]Remedy `json:"remedies" doc:"What each kind that was found means, and what to do about it."`
	// Acknowledged lists the differences that a person has acknowledged. Verdict, Found, the counts and Sealable ignore
	// them.
	Acknowledged []Acknowledged `json:"acknowledged" nullable:"false" doc:"Differences that a person has acknowledged. No other field counts them."`
	// Dropped lists grants that a person decided not to deliver to a sink (Where), up to Config.MaxListed;
	// Total.Dropped counts all. Such grants are not differences.
	Dropped []Difference `json:"dropped" nullable:"false" doc:"Grants that a person decided not to deliver to a sink, up to 100. They are not differences."`
	// Bases say where the next audit can begin to read the topic, once the sealable campaigns are sealed. There are none
	// if this audit found a difference or read only some campaigns.
	Bases []TopicBase `json:"-"`
	// Stored are the bases that the ledger had when the audit began. The caller of Run sets them.
	Stored []TopicBase `json:"-"`
}

// Remedy explains a kind of difference, and says what a person should do about it.
type Remedy struct {
	Means string `json:"means" doc:"What the kind means."`
	Do    string `json:"do" doc:"What to do about it."`
}

// CampaignReport has the counts of one campaign.
type CampaignReport struct {
	Campaign string `json:"campaign" doc:"The campaign's id."`
	// Currency is the currency of the amounts; empty if the campaign has none.
	Currency string `json:"currency,omitempty" doc:"Currency of the amounts. Absent if the campaign has none."`
	// InRedis is false if only the ledger has the campaign.
	InRedis bool `json:"in_redis" doc:"False if only the ledger has the campaign."`
	// Loading is true while packets are added to the stock, before the first grant.
	Loading bool `json:"loading" doc:"True while the campaign is being loaded into Redis. Its stock is not compared with its plan before that ends."`
	// Sealed reports whether the campaign was sealed, so that its grants were not read. Sealable reports whether it may
	// be sealed: it was refunded and has left Redis, and this audit has judged each of its grants and found no
	// difference anywhere.
	Sealed   bool `json:"sealed" doc:"True if the campaign is sealed. Then only an audit with this campaign, or with full, reads its grants."`
	Sealable bool `json:"sealable" doc:"True if an audit with seal would seal the campaign."`
	// Unbased reports whether a seal is unfinished: the bases of accounts lack grants of the campaign.
	Unbased bool `json:"-"`
	// Ended is set if Redis had lost data of the campaign. It says who ended the campaign from the ledger, and why.
	Ended string `json:"ended_from_ledger,omitempty" doc:"Who ended the campaign from the ledger, and why. Absent if no one did."`
	Counts
}

// Counts are numbers of packets; fields named Amount, and Funded, Refunded and Open, are money. The fields from Funded
// to LeftAmount are the counts in Redis, 0 for a campaign that has left Redis.
type Counts struct {
	Packets       int64          `json:"packets" doc:"Number of packets in Redis."`
	Funded        hongbao.Amount `json:"funded_amount" doc:"Total amount of these packets."`
	Granted       int64          `json:"granted" doc:"Number of granted packets in Redis."`
	GrantedAmount hongbao.Amount `json:"granted_amount" doc:"Amount of the granted packets in Redis."`
	Left          int64          `json:"left" doc:"Number of packets left in Redis."`
	LeftAmount    hongbao.Amount `json:"left_amount" doc:"Amount of the packets left in Redis."`
	// Withheld counts the packets among Left that a restore withheld and that no person has decided.
	Withheld int64 `json:"withheld" doc:"Number of withheld packets without a decision; they count as left, too."`
	// Settled and SettledAmount are counted from the ledger's grants. Refunded and Open are the ledger's own counters.
	Settled       int64          `json:"settled" doc:"Number of the ledger's grants."`
	SettledAmount hongbao.Amount `json:"settled_amount" doc:"Amount of the ledger's grants."`
	Refunded      hongbao.Amount `json:"refunded_amount" doc:"Amount that was refunded to the sponsor."`
	Open          hongbao.Amount `json:"open_amount" doc:"Amount in the ledger that is neither granted nor refunded."`
	// Published counts the topic's records, including duplicates.
	Published int64 `json:"published" doc:"Number of records that the audit read in the topic, with duplicates."`
	// Unsettled counts grants in flight to the ledger, Unpublished those in flight to the topic, and InFlight those in
	// flight to at least one of them. Newer counts grants made while the audit was reading. None of them is judged.
	Unsettled   int64 `json:"unsettled" doc:"Number of grants in flight to the ledger; they are not judged."`
	Unpublished int64 `json:"unpublished" doc:"Number of grants in flight to the topic; they are not judged."`
	InFlight    int64 `json:"in_flight" doc:"Number of grants in flight to at least one sink; they are not judged."`
	Newer       int64 `json:"newer" doc:"Number of grants made while the audit was reading; they are not judged."`
	// Expired counts grants that the topic no longer keeps. They are not judged in the topic.
	Expired int64 `json:"expired" doc:"Number of grants that the topic no longer keeps; they are not judged in the topic."`
	// NotOwed counts grants that a sink does not owe, because it was added later or was removed at that time. They are not
	// judged in the sink. A grant that two sinks do not owe counts twice.
	NotOwed int64 `json:"not_owed" doc:"Number of grants that a sink does not owe and does not have, because it was added later or was removed at that time; they are not judged there; twice for two sinks."`
	// Dropped counts grants that a person decided not to deliver to a sink. A grant that was dropped for two sinks
	// counts twice.
	Dropped int64 `json:"dropped" doc:"Number of grants that a person decided not to deliver to a sink; twice for two sinks."`
	// The fields from Lost to Quarantined count the differences about single grants.
	Lost           int64 `json:"lost" doc:"Number of differences of the kind 'lost'."`
	DoubleCredits  int64 `json:"double_credits" doc:"Number of differences of the kind 'double_credit'."`
	Unfounded      int64 `json:"unfounded" doc:"Number of differences of the kind 'unfounded'."`
	Different      int64 `json:"different" doc:"Number of differences of the kind 'different'."`
	MissingInTopic int64 `json:"missing_in_topic" doc:"Number of differences of the kind 'missing_in_topic'."`
	Duplicates     int64 `json:"duplicates" doc:"Number of differences of the kind 'duplicate_in_topic'."`
	DeadLetters    int64 `json:"dead_letters" doc:"Number of differences of the kind 'dead_letter'."`
	Quarantined    int64 `json:"quarantined" doc:"Number of differences of the kind 'quarantined'."`
	// Foreign and OpenClaims are set in the total only: foreign records and open claims belong to no campaign.
	Foreign    int64 `json:"foreign" doc:"Number of records of other deployments in the topic; 0 for a single campaign."`
	OpenClaims int64 `json:"open_claims" doc:"Number of pushes in progress; 0 for a single campaign."`
}

// Add adds the counts of another campaign. It leaves the counts of differences out.
func (c *Counts) Add(o *Counts) {
	c.Packets += o.Packets
	c.Funded += o.Funded
	c.Granted += o.Granted
	c.GrantedAmount += o.GrantedAmount
	c.Left += o.Left
	c.LeftAmount += o.LeftAmount
	c.Withheld += o.Withheld
	c.Settled += o.Settled
	c.SettledAmount += o.SettledAmount
	c.Refunded += o.Refunded
	c.Open += o.Open
	c.Published += o.Published
	c.Unsettled += o.Unsettled
	c.Unpublished += o.Unpublished
	c.InFlight += o.InFlight
	c.Newer += o.Newer
	c.Expired += o.Expired
	c.NotOwed += o.NotOwed
	c.Dropped += o.Dropped
}

// ShardReport is the state of one shard when the audit began.
type ShardReport struct {
	Shard int   `json:"shard" doc:"Number of the shard."`
	Seq   int64 `json:"seq" doc:"The last seq of the shard."`
	// TrimmedCloses counts the closes whose entries the stream no longer had; their seqs come from the campaigns or the
	// ledger.
	TrimmedCloses int64 `json:"trimmed_closes" doc:"Number of closes whose entries the stream no longer has."`
	// Finished has the seq up to which each consumer group had finished everything.
	Finished map[string]int64 `json:"finished" doc:"For each sink, the seq up to which it has finished everything."`
}

// Difference is one disagreement between places.
type Difference struct {
	Kind DifferenceKind `json:"kind" doc:"The kind of the difference, such as 'lost'. In 'dropped' it is 'dropped'."`
	// Where names the place: stock, receipts, stream, ledger, topic, or a key.
	Where    string `json:"where" doc:"The place with the difference: a store, or a key in Redis."`
	Campaign string `json:"campaign,omitempty" doc:"Id of the campaign. Absent if the difference names none."`
	Packet   int64  `json:"packet,omitempty" doc:"Number of the packet. Absent if the difference names none."`
	// Event is "<shard>-<seq>", if there is one.
	Event  string `json:"event,omitempty" doc:"Id of the event, as SHARD-SEQ. Absent if the difference names none."`
	Detail string `json:"detail" doc:"What differs, in words."`
	// Receipt says what the receipts contain about the packet; empty if they were not read again.
	Receipt string `json:"receipt,omitempty" doc:"What the receipts have about the packet. Absent if the audit did not read them again."`
}

// DifferenceKind is a kind of difference.
type DifferenceKind string

// Acknowledged is a difference that a person has acknowledged. It counts nowhere else in the report.
type Acknowledged struct {
	Difference
	By    string    `json:"by" doc:"Who acknowledged the difference."`
	Why   string    `json:"why" doc:"The reason for the acknowledgement."`
	Until time.Time `json:"until" doc:"From this time on, the audit counts the difference again."`
}

// TopicBase says where the next audit begins to read a partition of the topic. Each record before Next was judged. Each
// record before First also belongs to a sealed campaign.
type TopicBase struct {
	Part        int
	First, Next int64
	// Last is the offset of the last grant before Next, and Event identifies the grant. Last is -1 if there is none.
	Last  int64
	Event string
}

// RunningAudit is the audit that a server of the deployment runs.
type RunningAudit struct {
	Since time.Time `json:"since" doc:"Time when the audit started."`
	By    string    `json:"by" doc:"Who started it: key:ID for an API key."`
	// Request identifies the request for the audit.
	Request string `json:"-"`
	// Ended is the time when the audit ended without an error; zero until then.
	Ended time.Time `json:"-"`
}
