package model

import (
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
)

// Campaign is a campaign in a list: the answer of the API, and a line of the console. The fields with a name in JSON are
// by the ledger, except Status and Granted.
type Campaign struct {
	ID       string         `json:"id" doc:"The campaign's id."`
	Name     string         `json:"name" doc:"The campaign's name for people."`
	Kind     hongbao.Kind   `json:"kind" doc:"What the packets are: 'red_packet' or 'coupon'."`
	Packets  int64          `json:"packets" doc:"Number of packets, including those of top-ups."`
	Granted  int64          `json:"granted" doc:"Number of packets that users got. The ledger's number if Redis does not have the campaign or was not read."`
	Currency string         `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217; absent for coupons without a value."`
	Funded   hongbao.Amount `json:"funded_amount" doc:"Amount that the sponsor has paid in, in minor units."`
	Paid     hongbao.Amount `json:"granted_amount" doc:"Amount that the ledger has booked for users, in minor units."`
	Refunded hongbao.Amount `json:"refunded_amount" doc:"Amount that went back to the sponsor, in minor units."`
	State    MoneyState     `json:"state" enum:"funded,refunded" doc:"State of the campaign in the ledger."`
	// Status is Unread if Redis could not be read.
	Status   string        `json:"status" enum:"created,loading,not_started,open,paused,sold_out,ended,closed,refunded,frozen,unread" doc:"State that a grab would find, as in the console. 'created' means that the campaign is not loaded. 'unread' means that Redis could not be read."`
	From     time.Time     `json:"from" doc:"Start of the window for grabs."`
	To       time.Time     `json:"to" doc:"End of the window for grabs."`
	TimeZone string        `json:"time_zone" doc:"IANA name of the campaign's time zone."`
	Codes    optional.Text `json:"codes" nullable:"true" doc:"Source of the coupon codes: 'pattern' or 'file'. Null if the campaign has no codes."`

	// Sponsor is who funds the campaign; empty if the ledger could not be read.
	Sponsor string `json:"-"`
	// Note says why Redis could not be read or why the campaign is frozen; nil for other states.
	Note *Sentence `json:"-"`
	// Outage says that Redis could not be read because no server answered.
	Outage bool `json:"-"`
	// InRedis reports whether Redis has returned the campaign's counts. If not, Granted, Dealt and GrantedSum are by the
	// ledger, and Left and LeftSum are 0. Dealt counts the packets without the top-ups that Redis does not have yet.
	InRedis    bool           `json:"-"`
	Dealt      int64          `json:"-"`
	GrantedSum hongbao.Amount `json:"-"`
	Left       int64          `json:"-"`
	LeftSum    hongbao.Amount `json:"-"`
	// Sinks are, by Redis, how many of the campaign's grants each sink has finished. A sink that has finished none is missing.
	Sinks []Finished `json:"-"`
	// Paused is nil unless the campaign is paused.
	Paused *Pause `json:"-"`
	// CanPause and CanResume report whether pausing and resuming would have an effect.
	CanPause  bool `json:"-"`
	CanResume bool `json:"-"`
	// Samples are the samples of the last ten minutes, the oldest first. A campaign that does not run has none.
	Samples []Sample `json:"-"`
	// Places has the campaign's share on each shard. It is nil for a campaign on one shard.
	Places []Place `json:"-"`
}

// CampaignStatuses returns the values of Campaign.Status.
func CampaignStatuses() []string {
	field, _ := reflect.TypeFor[Campaign]().FieldByName("Status")
	return strings.Split(field.Tag.Get("enum"), ",")
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
	switch c.Status {
	case "created", "loading", "closed", "refunded":
		return false
	}
	return !now.Before(c.From) && now.Before(c.To)
}

// Known reports whether Redis has returned the counts of the campaign.
func (c *Campaign) Known() bool { return c.Status != Unread && c.Status != "frozen" }

// Unread is the status of a campaign that could not be read from Redis. Its counts are the ledger's.
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
	// Spans are what changed or disturbed the campaign, as far as it is known, in the order of their beginning.
	Spans []Span
	Notes []Sentence
}

// Unpaid returns how many granted packets the ledger does not have yet.
func (l *Live) Unpaid() int64 { return max(0, l.Granted-l.Settled) }

// Adding returns how many packets of a top-up Redis does not have yet.
func (l *Live) Adding() int64 { return max(0, l.Packets-l.Dealt) }

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
