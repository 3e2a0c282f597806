package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Verdict is the result of an audit.
type Verdict string

// The verdicts. Agrees: no difference among what was judged.
const (
	Agrees  Verdict = "agrees"
	Differs Verdict = "differs"
)

// Report is what an audit found.
type Report struct {
	Verdict Verdict   `json:"verdict"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Quiet says that every consumer group had finished everything when the audit began to read.
	Quiet bool `json:"quiet"`
	// LeftOut says what was not compared, and why.
	LeftOut   []string         `json:"left_out"`
	Total     Counts           `json:"total"`
	Campaigns []CampaignReport `json:"campaigns"`
	Shards    []ShardReport    `json:"shards"`
	// Found counts all differences of each kind. Differences lists them, up to Config.MaxListed of a kind.
	Found       map[Kind]int64 `json:"found"`
	Differences []Difference   `json:"differences"`
	// Remedies says what to do about each kind that was found. None of them moves money while the ledger disagrees with
	// itself.
	Remedies map[Kind]Remedy `json:"remedies"`
	// Acknowledged lists the differences that a person has acknowledged for now. Verdict, Found, counts and Sealable
	// leave them out.
	Acknowledged []Acknowledged `json:"acknowledged"`
	// Dropped lists grants that a person decided not to deliver to a sink (Where), up to Config.MaxListed;
	// Total.Dropped counts all. They are no differences.
	Dropped []Difference `json:"dropped"`
}

// notDelivered is the kind of Report.Dropped.
const notDelivered Kind = "dropped"

// Remedy is what a kind of difference means, and what a person does about it.
type Remedy struct {
	Means string `json:"means"`
	Do    string `json:"do"`
}

// CampaignReport is one campaign's counts.
type CampaignReport struct {
	Campaign string `json:"campaign"`
	// Currency is the currency of the amounts; empty for a campaign that has none.
	Currency string `json:"currency,omitempty"`
	// InRedis is false for a campaign that the ledger has and that has left Redis, or was never there.
	InRedis bool `json:"in_redis"`
	// Sealed: its grants were audited before and not read again. Sealable: it may be sealed, since it was refunded and
	// has left Redis, and this audit has judged each of its grants and found no difference anywhere.
	Sealed   bool `json:"sealed"`
	Sealable bool `json:"sealable"`
	// Ended says who ended it from the ledger alone, and why, if Redis had lost data of it.
	Ended string `json:"ended_from_ledger,omitempty"`
	Counts
}

// Counts are packets, or money where the name says amount. Funded to LeftAmount are the counts in Redis of the
// campaigns that it has.
type Counts struct {
	Packets       int64          `json:"packets"`
	Funded        hongbao.Amount `json:"funded_amount"`
	Granted       int64          `json:"granted"`
	GrantedAmount hongbao.Amount `json:"granted_amount"`
	Left          int64          `json:"left"`
	LeftAmount    hongbao.Amount `json:"left_amount"`
	// Settled is the sum over the ledger's grants; Refunded and Open are its own counters.
	Settled       int64          `json:"settled"`
	SettledAmount hongbao.Amount `json:"settled_amount"`
	Refunded      hongbao.Amount `json:"refunded_amount"`
	Open          hongbao.Amount `json:"open_amount"`
	// Published counts the records of the topic, duplicates included.
	Published int64 `json:"published"`
	// Unsettled grants are in flight to the ledger, Unpublished ones to the topic, InFlight ones to either of them. Newer
	// ones were granted while the audit was reading. None of these is judged.
	Unsettled   int64 `json:"unsettled"`
	Unpublished int64 `json:"unpublished"`
	InFlight    int64 `json:"in_flight"`
	Newer       int64 `json:"newer"`
	// Expired are grants that the topic no longer keeps; they are not judged there.
	Expired int64 `json:"expired"`
	// Dropped are grants that a person decided not to deliver to a sink, counted once for each such sink.
	Dropped int64 `json:"dropped"`
	// The differences about single grants.
	Lost           int64 `json:"lost"`
	DoubleCredits  int64 `json:"double_credits"`
	Unfounded      int64 `json:"unfounded"`
	Different      int64 `json:"different"`
	MissingInTopic int64 `json:"missing_in_topic"`
	Duplicates     int64 `json:"duplicates"`
	DeadLetters    int64 `json:"dead_letters"`
	Quarantined    int64 `json:"quarantined"`
	// Foreign records of the topic and open claims have no campaign: they are in the total only.
	Foreign    int64 `json:"foreign"`
	OpenClaims int64 `json:"open_claims"`
}

func (c *Counts) add(o *Counts) {
	c.Packets += o.Packets
	c.Funded += o.Funded
	c.Granted += o.Granted
	c.GrantedAmount += o.GrantedAmount
	c.Left += o.Left
	c.LeftAmount += o.LeftAmount
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
	c.Dropped += o.Dropped
}

// setFound sets the counts of the differences about single grants.
func (c *Counts) setFound(n map[Kind]int64) {
	c.Lost, c.DoubleCredits, c.Unfounded, c.Different = n[Lost], n[DoubleCredit], n[Unfounded], n[Different]
	c.MissingInTopic, c.Duplicates = n[MissingInTopic], n[DuplicateInTopic]
	c.DeadLetters, c.Quarantined = n[DeadLetter], n[InQuarantine]
}

// ShardReport is the state of one shard when the audit began.
type ShardReport struct {
	Shard int   `json:"shard"`
	Seq   int64 `json:"seq"`
	// TrimmedCloses counts the closes whose entries the stream no longer had; campaigns and ledger have their seqs.
	TrimmedCloses int64 `json:"trimmed_closes"`
	// Finished has, for each consumer group, the seq up to which it had finished everything.
	Finished map[string]int64 `json:"finished"`
}

// Difference is one place where the data disagrees.
type Difference struct {
	Kind Kind `json:"kind"`
	// Where names the place: stock, receipts, stream, ledger, topic, or a key.
	Where    string `json:"where"`
	Campaign string `json:"campaign,omitempty"`
	Packet   int64  `json:"packet,omitempty"`
	// Event is "<shard>-<seq>", if there is one.
	Event  string `json:"event,omitempty"`
	Detail string `json:"detail"`
	// Receipt says what the receipts have of the packet, if that was looked up.
	Receipt string `json:"receipt,omitempty"`
}

func (d *Difference) compare(o *Difference) int {
	return cmp.Or(cmp.Compare(kindIndex(d.Kind), kindIndex(o.Kind)), cmp.Compare(d.Campaign, o.Campaign),
		cmp.Compare(d.Packet, o.Packet), cmp.Compare(d.Where, o.Where), cmp.Compare(d.Event, o.Event))
}

func kindIndex(k Kind) int {
	return slices.IndexFunc(remedies, func(m remedy) bool { return m.kind == k })
}

// sealable reports whether nothing of a campaign can change any more and all of it was judged.
func (r *run) sealable(c *campaign) bool {
	return len(r.report.Found) == 0 && !r.partial() && c.ledger != nil && c.ledger.Closed && !c.sealed && !c.inRedis() &&
		c.counts.InFlight+c.counts.Newer == 0 && c.counts.Settled == c.ledger.Grants
}

// frozenOnly reports whether all differences of a kind are of campaigns that are frozen wherever Redis still has a part
// of them, even if only a stub: these can't be paused.
func (r *run) frozenOnly(k Kind) bool {
	var n int64
	for _, c := range r.campaigns {
		if c.frozen() {
			n += c.found[k]
		}
	}
	return n == r.report.Found[k]
}

func (c *campaign) frozen() bool {
	for _, s := range c.on {
		if s.state != store.StateFrozen {
			return false
		}
	}
	return len(c.on)+c.stubs > 0
}

// finish turns the findings into the report.
func (r *run) finish() *Report {
	rep := &r.report
	rep.Verdict = Agrees
	if len(rep.Found) > 0 {
		rep.Verdict = Differs
	}
	for _, d := range r.listed {
		rep.Differences = append(rep.Differences, *d)
	}
	slices.SortStableFunc(rep.Differences, func(a, b Difference) int { return a.compare(&b) })
	for _, c := range r.sorted() {
		c.counts.setFound(c.found)
		report := CampaignReport{Campaign: c.id, Currency: c.currency(), InRedis: c.inRedis(), Sealed: c.sealed,
			Sealable: r.sealable(c), Counts: c.counts}
		if c.lost() {
			report.Ended = c.ended()
		}
		rep.Campaigns = append(rep.Campaigns, report)
		rep.Total.add(&c.counts)
	}
	for _, s := range r.shards {
		rep.Shards = append(rep.Shards, s.report)
	}
	rep.Total.setFound(rep.Found)
	rep.sortAcknowledged()
	rep.Remedies = make(map[Kind]Remedy, len(rep.Found))
	all := rep.allFound()
	for k := range rep.Found {
		rep.Remedies[k] = remedyOf(k, all, r.frozenOnly(k))
	}
	rep.Seconds = time.Since(rep.Started).Seconds()
	return rep
}
