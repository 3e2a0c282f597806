package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/answers"
)

// Outcome says how an action ended.
type Outcome string

// The outcomes.
const (
	// OutcomeDone says that it was done. A repeat that changes nothing is done, too.
	OutcomeDone Outcome = "done"
	// OutcomeRefused says that nothing was done. The reason is in the details.
	OutcomeRefused Outcome = "refused"
	// OutcomeFailed says that a server was unreachable, or that a part is left to do.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnknown says that it may have been done.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeDenied says that the caller may not do this.
	OutcomeDenied Outcome = "denied"
)

// Entry is a line of the journal: the caller and the action. It contains no seed, no code and no amount of a packet.
type Entry struct {
	// ID is drawn once: an entry that is written twice is in the journal once.
	ID   string    `json:"id" doc:"Drawn once for each entry."`
	Time time.Time `json:"time" doc:"When the action began."`
	// Who is key:ID for an API key, cli:USER@HOST for a command.
	Who    string `json:"who" doc:"key:ID for an API key, cli:USER@HOST for a command."`
	Action Action `json:"action" doc:"What was to be done."`
	// Campaign and Sink are empty if it is about none, or about all.
	Campaign  string         `json:"campaign,omitempty" doc:"The campaign; absent if it is about none, or several."`
	Sink      string         `json:"sink,omitempty" doc:"The sink; absent if it is about none, or several."`
	Outcome   Outcome        `json:"outcome" doc:"done, refused, failed, denied, or unknown: it may have been done."`
	RequestID string         `json:"request_id,omitempty" doc:"The X-Request-Id of the request; absent for a command."`
	Details   map[string]any `json:"details,omitempty" doc:"What was asked for, and what came of it."`
}

// Actor is the one who acts. The zero Actor is the user of this process.
type Actor struct {
	// Who is as in Entry.
	Who string
	// RequestID is that of their request over HTTP.
	RequestID string
	// Spending bounds what may be spent with ctx; see MaySpend.
	Spending Spending
}

type actorKey struct{}

// As returns ctx with an actor: actions with it are written into the journal under the actor's name.
func As(ctx context.Context, who Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, who)
}

// Name returns the caller's name in the journal, in letters and in decisions.
func (c *Caller) Name() string { return "key:" + c.Key }

// Actor returns the actor for the caller's actions.
func (c *Caller) Actor(requestID string) Actor {
	return Actor{Who: c.Name(), RequestID: requestID, Spending: c.Spending}
}

// NewEntry draws an entry for the actor of ctx.
func NewEntry(ctx context.Context, a Action) Entry {
	who, _ := ctx.Value(actorKey{}).(Actor)
	if who.Who == "" {
		who.Who = thisProcess()
	}
	return Entry{ID: rand.Text(), Time: time.Now().UTC().Truncate(time.Millisecond), Who: who.Who, Action: a,
		RequestID: who.RequestID}
}

// thisProcess returns the user of this process, and its host.
var thisProcess = sync.OnceValue(func() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("cli:%.60s@%.120s", name, host)
})

// maxError bounds how much of an error an entry keeps.
const maxError = 500

// End notes how the action ended.
func (e *Entry) End(err error) {
	if err == nil {
		e.Outcome = OutcomeDone
		return
	}
	e.Outcome = OutcomeFailed
	switch hongbao.ClassOf(err) {
	case hongbao.ClassPermanent, hongbao.ClassConflict, hongbao.ClassBroken:
		e.Outcome = OutcomeRefused
	case hongbao.ClassUnknown:
		if hongbao.IsOutage(err) || errors.Is(err, context.Canceled) {
			e.Outcome = OutcomeUnknown
		}
	case hongbao.ClassTransient:
	}
	if errors.Is(err, ErrMayNotSpend) {
		e.Outcome = OutcomeDenied
	}
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details["error"] = strings.ToValidUTF8(err.Error()[:min(len(err.Error()), maxError)], "")
}

// maxColumn bounds a text of an entry, in bytes.
const maxColumn = 255

// Fit changes every text except the id into one that each ledger can store. A campaign id that can't exist, because a
// caller invented it, goes into the details.
func (e *Entry) Fit() {
	if e.Campaign != "" && hongbao.CheckCampaignID(e.Campaign) != nil {
		details := map[string]any{"campaign": column(e.Campaign)}
		maps.Copy(details, e.Details)
		e.Campaign, e.Details = "", details
	}
	for _, text := range []*string{&e.Who, &e.Sink, &e.RequestID, (*string)(&e.Action), (*string)(&e.Outcome)} {
		*text = column(*text)
	}
}

func column(text string) string { return Storable(text, maxColumn) }

// Storable changes a text into one of at most most bytes that every ledger can store.
func Storable(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// JournalQuery selects entries of the journal, the newest first.
type JournalQuery struct {
	Campaign, Who string // empty: any
	// Since leaves out older entries.
	Since time.Time
	// After is the Next of the previous page; empty begins.
	After string
	// Limit is 1 to 1000.
	Limit int
}

// JournalPage is a page of the journal.
type JournalPage struct {
	Entries []Entry `json:"entries" doc:"Newest first."`
	// Next is where the next page begins; empty if there is none.
	Next answers.Text `json:"next" nullable:"true" doc:"Goes into after; null on the last page."`
}

// Denials bounds how many refusals of one caller the journal takes: 20 a minute. The zero value is ready.
type Denials struct {
	mu  sync.Mutex
	who map[string]*denied
}

type denied struct {
	since         time.Time
	told, skipped int
}

// Bounds of Denials.
const (
	denialsEach  = time.Minute
	denialsTold  = 20
	denialsKnown = 10_000
)

// Take reports whether to write a refusal of a caller, and how many before it were not written.
func (d *Denials) Take(who string) (write bool, skipped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.who == nil || len(d.who) >= denialsKnown {
		d.who = make(map[string]*denied)
	}
	at, now := d.who[who], time.Now()
	if at == nil {
		at = &denied{since: now}
		d.who[who] = at
	}
	if now.Sub(at.since) >= denialsEach {
		at.since, at.told = now, 0
	}
	if at.told >= denialsTold {
		at.skipped++
		return false, 0
	}
	at.told++
	skipped, at.skipped = at.skipped, 0
	return true, skipped
}
