package model

import (
	"net/url"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Campaign is a line of the list.
type Campaign struct {
	ID, Name, Kind, Currency string
	// State is the state that a grab would find: created, loading, not_started, open, paused, ended, sold_out,
	// frozen, closed, refunded; Unread if Redis could not be read. Note says why it could not, or why the campaign is
	// frozen.
	State, Note            string
	From, To               time.Time
	Packets, Granted, Left int64
	Funded, Paid, Refunded hongbao.Amount // by the ledger
	GrantedSum, LeftSum    hongbao.Amount // by Redis
	InRedis                bool
	// CanPause and CanResume report which of the two would have an effect.
	CanPause, CanResume bool
	// Places are the shards of a campaign on several shards; nil for one.
	Places []Place
}

// Runs reports whether the campaign is in its window, and neither a draft nor over.
func (c *Campaign) Runs(now time.Time) bool {
	switch c.State {
	case "created", "loading", "closed", "refunded":
		return false
	}
	return !now.Before(c.From) && now.Before(c.To)
}

// Unread is the state of a campaign that could not be read from Redis. Its counts are the ledger's.
const Unread = "unread"

// Place is a campaign's share on one of several shards, by Redis.
type Place struct {
	Shard                  int
	State                  string // as Redis has it, or missing
	Packets, Granted, Left int64
}

// Search picks a page of the campaigns whose id, name or sponsor contains a text. The first page is 0.
type Search struct {
	Text string
	Page int
	// Scope has the campaigns of the caller's key, separated by commas; empty for all.
	Scope string
}

// Path is the path of the page.
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
	Note string
}

// Next and Before are the paths of the neighbours of a page.
func (c Campaigns) Next() string { return Search{Text: c.Text, Page: c.Page + 1}.Path() }

// Before is empty on the first page.
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
	// Settled counts the ledger's grants. If LedgerUnread is true, the ledger could not be read: Settled and the ledger's
	// sums are unknown.
	Settled      int64
	LedgerUnread bool
	// Outcomes are the answers of this process since its start.
	Outcomes []Count
	Spread   []Bin
	// Undrawn says why Spread and Timeline are missing or old; else it is empty.
	Undrawn string
	// Revealed reports that the seed is public: pages show the plan beside the granted packets.
	Revealed bool
	Timeline []Point
	// Step is the length of a step of the timeline.
	Step time.Duration
	// Moments are past and planned events of the campaign's life, in the order of time.
	Moments []Moment
	Notes   []string
}

// Answered counts the answers of this process.
func (l *Live) Answered() (n int64) {
	for _, c := range l.Outcomes {
		n += c.N
	}
	return n
}

// Verdict is the result of the last whole audit. At is zero if no audit began since the campaign was created.
type Verdict struct {
	Agrees      bool
	Unread      bool // the result could not be read
	Differences int64
	At          time.Time
}

// Lag is how far a sink is behind on the campaign's shards.
type Lag struct {
	Sink    string
	Grants  int64
	Seconds float64
}

// Count is how often an outcome was answered.
type Count struct {
	Name string
	N    int64
}

// Bin counts packets with amounts from Low to High: the paid ones, and the plan's.
type Bin struct {
	Low, High     hongbao.Amount
	Granted, Plan int64
}

// Point is a step of the timeline.
type Point struct {
	At     time.Time
	Grants int64
}

// Moment is an instant of a campaign's life.
type Moment struct {
	What string
	At   time.Time
}
