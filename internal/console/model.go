package console

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// Source reads what the pages show. Its methods may be called at once.
type Source interface {
	// Campaigns are a page of those that were found, those that run now first.
	Campaigns(ctx context.Context, s Search) (Campaigns, error)
	// Campaign gives one; ErrNotFound if there is none.
	Campaign(ctx context.Context, id string) (*Live, error)
	Sinks(ctx context.Context) ([]Sink, error)
	// Letters gives a page of dead letters after an id, and where the next begins.
	Letters(ctx context.Context, f deadletter.Filter, after string) (page []deadletter.Letter, next string, err error)
	// Letter gives one; ErrNotFound if there is none.
	Letter(ctx context.Context, id string) (deadletter.Letter, error)
	// Quarantine gives a page of grants in quarantine after a number; with all, the decided ones too.
	Quarantine(ctx context.Context, after int64, all bool) ([]ledger.Quarantined, error)
	// Quarantined gives one; ErrNotFound if there is none.
	Quarantined(ctx context.Context, id int64) (ledger.Quarantined, error)
	// Trail follows the grants of a user, or of a packet, through all places.
	Trail(ctx context.Context, q Question) (Trails, error)
	// Replays are those that were begun by anybody, as far as Redis knows them.
	Replays(ctx context.Context) ([]Progress, error)
	// Journal gives a page of who did what, the newest first.
	Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error)
}

// Actions change things. Every one is recorded with the actor that ctx has: access.As.
type Actions interface {
	// Denied records that the actor was refused what he may not do.
	Denied(ctx context.Context, a access.Action, campaign string, why error)
	// CheckCampaign tells whether a campaign is there already, and refuses one that can't be created.
	CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error)
	// CreateCampaign funds a campaign; the same again changes nothing, and is not new. StoreCodes draws the codes of one
	// of coupons.
	CreateCampaign(ctx context.Context, who *access.Caller, spec hongbao.Campaign) (isNew bool, err error)
	StoreCodes(ctx context.Context, spec hongbao.Campaign) error
	// LoadCampaign loads a campaign into Redis, or goes on with that.
	LoadCampaign(ctx context.Context, who *access.Caller, id string) error
	TurnCampaign(ctx context.Context, who *access.Caller, id string, pause bool) error
	TurnSink(ctx context.Context, who *access.Caller, sink string, pause bool) error
	// Requeue delivers dead letters, and Drop ends them; a dry run counts them only.
	Requeue(ctx context.Context, who *access.Caller, o LetterOrder) (*deadletter.Report, error)
	Drop(ctx context.Context, who *access.Caller, o LetterOrder) (*deadletter.Report, error)
	// Decide pays or voids a grant in quarantine.
	Decide(ctx context.Context, who *access.Caller, d ledger.Decision) error
	// TopUp adds packets to a campaign.
	TopUp(ctx context.Context, who *access.Caller, o TopUpOrder) (text string, err error)
	// Replay delivers grants again. Source.Replays tells how far it is.
	Replay(ctx context.Context, who *access.Caller, o ReplayOrder) (text string, err error)
	Audit(ctx context.Context, who *access.Caller) (*audit.Report, error)
}

// LetterOrder is what shall become of dead letters: those of Pick.IDs, or those that the filter picks.
type LetterOrder struct {
	Pick   deadletter.Pick
	Why    string
	DryRun bool
}

// TopUpOrder is a wish to add packets to a campaign. Expect is what it was funded with on the page, ID was drawn with
// it.
type TopUpOrder struct {
	Campaign, ID, Tiers, Why string
	Packets                  int64
	Total, Expect            hongbao.Amount
}

// ReplayOrder is a wish to deliver grants again.
type ReplayOrder struct {
	Name, To, Campaign string
	Missing, DryRun    bool
}

// Campaign is a line of the list.
type Campaign struct {
	ID, Name, Kind, Currency string
	// State is what a grab would find: created, loading, not_started, open, paused, ended, sold_out, frozen, closed,
	// refunded; Unread if Redis could not tell. Note says why it could not, or why the campaign is frozen.
	State, Note            string
	From, To               time.Time
	Packets, Granted, Left int64
	Funded, Paid, Refunded hongbao.Amount // by the ledger
	GrantedSum, LeftSum    hongbao.Amount // by Redis
	InRedis                bool
	// CanPause and CanResume say which of the two would change anything.
	CanPause, CanResume bool
	// Places are the shards of a campaign that is dealt over several; nil for one.
	Places []Place
}

// Runs reports whether users grab in it now, or would if it were not paused, frozen or sold out.
func (c *Campaign) Runs(now time.Time) bool {
	switch c.State {
	case "created", "loading", "closed", "refunded":
		return false
	}
	return !now.Before(c.From) && now.Before(c.To)
}

// Unread is the state of a campaign of which Redis could not tell: the counts are the ledger's.
const Unread = "unread"

// Place is how a campaign stands on one of several shards, by Redis.
type Place struct {
	Shard                  int
	State                  string // as it stands in Redis, or missing
	Packets, Granted, Left int64
}

// Search picks a page of campaigns, those whose id, name or sponsor has a text in it. The first page is 0.
type Search struct {
	Text string
	Page int
}

// Path is that of the page.
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

// maxSearched and maxPage bound a search.
const maxSearched, maxPage = 100, 10_000

// parseSearch reads what Path writes; false if it is another page's.
func parseSearch(path string) (s Search, ok bool) {
	u, err := url.Parse(path)
	if err != nil || u.Path != "/" {
		return s, false
	}
	s.Text = strings.TrimSpace(u.Query().Get("q"))
	if page := u.Query().Get("page"); page != "" {
		if s.Page, err = strconv.Atoi(page); err != nil {
			return s, false
		}
		s.Page--
	}
	return s, len(s.Text) <= maxSearched && utf8.ValidString(s.Text) && s.Page >= 0 && s.Page < maxPage
}

// Campaigns is a page of the list. Note says what could not be read.
type Campaigns struct {
	Search
	List []Campaign
	More bool
	Note string
}

// Next and Before are the paths of the neighbours of a page.
func (c Campaigns) Next() string { return Search{c.Text, c.Page + 1}.Path() }

// Before is empty on the first page.
func (c Campaigns) Before() string {
	if c.Page == 0 {
		return ""
	}
	return Search{c.Text, c.Page - 1}.Path()
}

// Live is one campaign as it stands now.
type Live struct {
	Campaign
	Hash  string
	Split hongbao.Split
	Lags  []Lag
	Audit Verdict
	// Settled counts the ledger's grants. LedgerUnread: the ledger could not tell, so this and its sums are not known.
	Settled      int64
	LedgerUnread bool
	// Outcomes are the answers of this process since its start.
	Outcomes []Count
	Spread   []Bin
	// Undrawn says why Spread and Timeline are missing or old; empty if they are not.
	Undrawn string
	// Revealed: the seed is public, so the plan is shown beside what was granted.
	Revealed bool
	Timeline []Point
	// Step is the length of a step of the timeline.
	Step time.Duration
	// Moments are what the campaign has met and will meet, in the order of time.
	Moments []Moment
	Notes   []string
}

// answered counts the answers of this process.
func (l *Live) answered() (n int64) {
	for _, c := range l.Outcomes {
		n += c.N
	}
	return n
}

// Verdict is what the last whole audit said, whoever ran it; At is zero if none began since the campaign was created.
type Verdict struct {
	Agrees      bool
	Unread      bool // nobody could say
	Differences int64
	At          time.Time
}

// Lag is how far a sink is behind, on the shard of the campaign.
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

// Bin counts the packets of the amounts from Low to High: those that were granted and paid, and those of the plan.
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

// Sink is how a sink stands. Unread says which shards could not tell, and why.
type Sink struct {
	Name    string
	Waiting int64 // grants
	Held    int64 // entries in the workers' hands
	Parked  int64 // entries
	Dead    int64
	Oldest  float64 // seconds
	// State is working, paused, no_worker, behind or unread; Why says why it is not working.
	State, Why string
	Paused     bool
	// Campaigns are paused for this sink only: each with by whom and why.
	Campaigns []string
	Unread    []string
	Workers   []Worker
}

// Worker is a worker of a sink.
type Worker struct {
	Name  string
	Alive bool
	Seen  float64 // seconds ago
	Holds int64   // entries
}

// Question asks for a trail: of a user, or of a packet.
type Question struct {
	Campaign, User string
	Packet         int64
}

// Trails is an answer. Notes say what could not be asked.
type Trails struct {
	List  []Trail
	Notes []string
}

// Trail is where one grant is.
type Trail struct {
	Packet       int64
	User, Amount string
	Stations     []Station
}

// Progress is how far a replay is.
type Progress struct {
	Name, What string
	Begun      time.Time
	// Done of Of events were looked at.
	Done, Of int64
	Ended    bool
}

// Station is a place where a grant is, or is not.
type Station struct {
	Name string
	// There: it is here. Else Text says why not, or what is missing.
	There bool
	Text  string
}

// Faults are what somebody breaks on purpose, on a development server. Everywhere else there are none: neither the page
// nor its routes.
type Faults interface {
	// Buttons are what can be broken now.
	Buttons() []Fault
	// Cause breaks something; ErrNotFound for what it does not know.
	Cause(ctx context.Context, fault string) error
	// Story tells what happened, the newest first.
	Story() []Told
}

// Fault is a button.
type Fault struct{ Name, Label, What string }

// Told is a sentence of the story.
type Told struct {
	At       time.Time
	Sentence string
}
