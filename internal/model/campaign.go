package model

import (
	"net/url"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Campaign is a line in the list of campaigns.
type Campaign struct {
	ID, Name, Kind, Currency string
	// Zone is the campaign's time zone, and Sponsor who funds it; empty if the ledger could not be read.
	Zone, Sponsor string
	// State is the state that decides a grab: created, loading, not_started, open, paused, ended, sold_out, frozen,
	// closed or refunded. It is Unread if Redis could not be read.
	State string
	// Note says why Redis could not be read or why the campaign is frozen; nil for other states.
	Note *Sentence
	// Outage says that Redis could not be read because no server answered.
	Outage                 bool
	From, To               time.Time
	Packets, Granted, Left int64
	Funded, Paid, Refunded hongbao.Amount // by the ledger
	GrantedSum, LeftSum    hongbao.Amount // by Redis
	InRedis                bool
	// Sinks are, by Redis, how many of the campaign's grants each sink has finished. A sink that has finished none is missing.
	Sinks []Finished
	// Paused is nil unless the campaign is paused.
	Paused *Pause
	// CanPause and CanResume report whether pausing and resuming would have an effect.
	CanPause, CanResume bool
	// Samples are the samples of the last ten minutes, the oldest first. A campaign that does not run has none.
	Samples []Sample
	// Places has the campaign's share on each shard. It is nil for a campaign on one shard.
	Places []Place
}

// Title is what a page shows of a campaign that it only mentions: its name and its time zone.
type Title struct{ Name, Zone string }

// Pause says who paused a campaign, why and when. Why may be empty.
type Pause struct {
	By, Why string
	At      time.Time
}

// Runs reports whether now is between From and To, and the campaign is loaded and not closed.
func (c *Campaign) Runs(now time.Time) bool {
	switch c.State {
	case "created", "loading", "closed", "refunded":
		return false
	}
	return !now.Before(c.From) && now.Before(c.To)
}

// Known reports whether Redis has returned the counts of the campaign.
func (c *Campaign) Known() bool { return c.State != Unread && c.State != "frozen" }

// Unread is the state of a campaign that could not be read from Redis. Its counts are the ledger's.
const Unread = "unread"

// Finished counts the grants of a campaign that a sink has finished.
type Finished struct {
	Sink string `json:"sink" doc:"Name of the sink."`
	Done int64  `json:"done" doc:"Number of grants that the sink got, without those in 'dead'."`
	Dead int64  `json:"dead" doc:"Number of grants that became dead letters and were not requeued, including dropped ones."`
}

// Waiting returns how many of the campaign's grants wait for the sink of a lag. The lag counts the grants of all campaigns
// on the same shards, and so is a bound. Dead letters do not wait.
func (l *Live) Waiting(lag Lag) int64 {
	f := l.FinishedBy(lag.Sink)
	return max(0, min(lag.Grants, l.Granted-f.Done-f.Dead))
}

// FinishedBy returns the counts of a sink.
func (c *Campaign) FinishedBy(sink string) Finished {
	for _, f := range c.Sinks {
		if f.Sink == sink {
			return f
		}
	}
	return Finished{Sink: sink}
}

// Place is a campaign's share on one of several shards, as Redis has it.
type Place struct {
	Shard                  int
	State                  string // the state in Redis, or "missing"
	Packets, Granted, Left int64
}

// Search selects a page of the campaigns whose id, name or sponsor contains Text. The first page is 0.
type Search struct {
	Text string
	Page int
	// Scope lists the campaigns that the caller's key is for, separated by commas. Empty means all.
	Scope string
}

// Path returns the URL path and query of the page.
func (s Search) Path() string {
	q := url.Values{}
	if s.Text != "" {
		q.Set("q", s.Text)
	}
	if s.Page > 0 {
		q.Set("page", strconv.Itoa(s.Page+1))
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}

// Campaigns is a page of the list. Note names the servers that could not be read.
type Campaigns struct {
	Search
	List []Campaign
	More bool
	Note *Sentence
}

// Next returns the path of the next page.
func (c Campaigns) Next() string { return Search{Text: c.Text, Page: c.Page + 1}.Path() }

// Before returns the path of the previous page; empty on the first page.
func (c Campaigns) Before() string {
	if c.Page == 0 {
		return ""
	}
	return Search{Text: c.Text, Page: c.Page - 1}.Path()
}

// Live is the current state of one campaign.
type Live struct {
	Campaign
	Hash  string
	Split hongbao.Split
	Lags  []Lag
	Audit Verdict
	// Settled is the number of grants in the ledger. LedgerUnread says that the ledger could not be read, so Settled and
	// the ledger's sums are unknown.
	Settled      int64
	LedgerUnread bool
	// LoadBegun says that a load into Redis has begun, so the campaign can't be cancelled.
	LoadBegun bool
	// Answers are the answers of all servers to the campaign's grabs; nil if Redis could not be read.
	Answers *Answers
	// First and Last are the times of the first and the last grant in the ledger; zero if there is none, or if it is not
	// known. Created and Loading are when the campaign was created and when a load began.
	First, Last, Created, Loading time.Time
	// Adding is how many packets of a top-up Redis does not have yet.
	Adding int64
	// Full says that a Redis server has no memory for more, so it refuses grabs.
	Full   bool
	Spread []Bin
	// Undrawn says why Spread and Timeline are missing or old. It is nil if they are current.
	Undrawn *Sentence
	// Revealed says that the seed is public, so pages show the plan next to the granted packets.
	Revealed bool
	Timeline []Point
	// Step is the length of a step of the timeline.
	Step time.Duration
	// Moments are the past and planned events of the campaign, in chronological order.
	Moments []Moment
	Notes   []Sentence
}

// Verdict is the result of the last audit of everything. At is zero if no such audit has begun since the campaign was
// created.
type Verdict struct {
	Agrees      bool
	Unread      bool // the result could not be read
	Differences int64
	At          time.Time
}

// Lag is how far a sink is behind on the campaign's shards.
type Lag struct {
	Sink   string
	Grants int64
	Oldest time.Duration // how long the oldest of them has waited
}

// Bin counts the packets with amounts from Low to High: those that were granted and those in the plan.
type Bin struct {
	Low, High     hongbao.Amount
	Granted, Plan int64
}

// Point is the number of grants in one step of the timeline.
type Point struct {
	At     time.Time
	Grants int64
}

// Moment is a past or planned event of a campaign.
type Moment struct {
	What Sentence
	At   time.Time
}
