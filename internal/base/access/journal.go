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
	"unicode"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
)

// Outcome says how an action ended.
type Outcome string

// The outcomes.
const (
	// OutcomeDone says that the action was done. A repeat that changes nothing also counts as done.
	OutcomeDone Outcome = "done"
	// OutcomeRefused says that the action had no effect. The details contain the reason.
	OutcomeRefused Outcome = "refused"
	// OutcomeFailed says that a server was unreachable, or that the action was done only in part.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnknown says that the action may have been done.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeDenied says that the caller was not allowed to take the action.
	OutcomeDenied Outcome = "denied"
)

// Entry is a line of the journal: who took which action, and how it ended. It never contains a seed, a coupon code or
// the amount of a packet.
type Entry struct {
	// ID is drawn once for each entry, so that writing the entry twice stores it once.
	ID   string    `json:"id" doc:"Random id of the journal entry."`
	Time time.Time `json:"time" doc:"Time when the action began."`
	// Who is key:ID for an API key, cli:USER@HOST for a command, or stream.ByWorker for a worker.
	Who    string `json:"who" doc:"Who acted: key:ID for an API key, cli:USER@HOST for a command, 'hongbao' for a worker."`
	Action Action `json:"action" doc:"Name of the action."`
	// Campaign and Sink are empty if the action concerns no campaign or sink, or several.
	Campaign  string         `json:"campaign,omitempty" doc:"Id of the campaign. Absent if the action concerns no campaign, or several."`
	Sink      string         `json:"sink,omitempty" doc:"Name of the sink. Absent if the action concerns no sink, or several."`
	Outcome   Outcome        `json:"outcome" doc:"How the action ended: 'done', 'refused', 'failed', 'denied' or 'unknown'. After 'unknown' it may have been done."`
	RequestID string         `json:"request_id,omitempty" doc:"Header X-Request-Id of the answer to the request. Absent for a command."`
	Details   map[string]any `json:"details,omitempty" doc:"The fields of the request, and facts about the result."`
}

// Actor is the person or program that takes an action. The zero Actor means the user of this process.
type Actor struct {
	// Who has the form of Entry.Who.
	Who string
	// RequestID is the X-Request-Id of the HTTP request.
	RequestID string
	// Address is the address of the HTTP request's connection, without the port; "" for a command.
	Address string
	// Spending limits what the actor may spend; see MaySpend.
	Spending Spending
}

type actorKey struct{}

// As returns ctx with an actor. The journal records actions with this ctx under the actor's name.
func As(ctx context.Context, who Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, who)
}

// AddressOf returns the address of the actor of ctx; "" for a command.
func AddressOf(ctx context.Context) string {
	who, _ := ctx.Value(actorKey{}).(Actor)
	return who.Address
}

// IsLocal reports whether the actor of ctx is the user of this process, who has the passwords of all stores.
func IsLocal(ctx context.Context) bool {
	who, _ := ctx.Value(actorKey{}).(Actor)
	return who.Who == ""
}

// Name returns the name under which the journal, dead letters and decisions record the caller.
func (c *Caller) Name() string { return "key:" + c.Key }

// Actor returns the actor for the caller's actions.
func (c *Caller) Actor(requestID string) Actor {
	return Actor{Who: c.Name(), RequestID: requestID, Spending: c.Spending}
}

// NewEntry returns an entry for an action of the actor of ctx, with a random id.
func NewEntry(ctx context.Context, a Action) Entry {
	who, _ := ctx.Value(actorKey{}).(Actor)
	if who.Who == "" {
		who.Who = thisProcess()
	}
	return Entry{ID: rand.Text(), Time: time.Now().UTC().Truncate(time.Millisecond), Who: who.Who, Action: a,
		RequestID: who.RequestID}
}

// thisProcess names the user and the host of this process, for Entry.Who.
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

// maxError limits the length of the error in an entry, in bytes.
const maxError = 500

// End sets the outcome of the entry from the error of the action, and keeps the error in the details.
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

// maxColumn limits each text field of an entry, in bytes.
const maxColumn = 255

// Fit makes every text field of the entry storable in each ledger, except the id. It moves an invalid campaign id,
// which a caller must have invented, to the details.
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

// column returns text as a text field has it: without characters that could move the cursor of a terminal, or turn the
// direction of a line around.
func column(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsGraphic(c) {
			return '?'
		}
		return c
	}, Storable(text, maxColumn))
}

// Storable returns text in a form that every ledger can store, cut to at most most bytes.
func Storable(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// JournalQuery selects entries of the journal. The result has the newest entry first.
type JournalQuery struct {
	Campaign, Who string // empty: any
	// Since excludes older entries.
	Since time.Time
	// After is the Next of the previous page; empty for the first page.
	After string
	// Limit is 1 to MaxEntries.
	Limit int
}

// MaxEntries is the most entries of one page of the journal.
const MaxEntries = 1000

// JournalPage is a page of the journal.
type JournalPage struct {
	Entries []Entry `json:"entries" doc:"The journal entries of this page, the newest first."`
	// Next is the After of the next page; empty on the last page.
	Next optional.Text `json:"next" nullable:"true" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// The most refusals of one caller that the journal records each minute. All callers without a valid key count as one.
const (
	MostDenials = 20
	MostLogIns  = 1
	MostUnknown = 1
)

// UnknownCaller is Entry.Who if the key is not valid.
const UnknownCaller = "unknown"

// Denials limits how many refusals of one caller the journal records each minute. The zero value is ready to use.
type Denials struct {
	mu  sync.Mutex
	who map[string]*denied
}

type denied struct {
	since             time.Time
	recorded, skipped int
}

// Bounds of Denials.
const (
	denialsEach  = time.Minute
	denialsKnown = 10_000
)

// Take reports whether the journal should record this refusal of a caller; most is the number that it records each
// minute. If so, skipped is the number of the caller's refusals that were not recorded since the last recorded one.
func (d *Denials) Take(who string, most int) (write bool, skipped int) {
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
		at.since, at.recorded = now, 0
	}
	if at.recorded >= most {
		at.skipped++
		return false, 0
	}
	at.recorded++
	skipped, at.skipped = at.skipped, 0
	return true, skipped
}

// Read is a read of the data of a user or an account, for the journal.
type Read struct {
	Action   Action
	Campaign string // empty if the read concerns no campaign, or several
	// One of User, Account and Packet names the data. The journal has the SHA-256 of a user and of an account.
	User, Account string
	Packet        int64
}

// Details returns what the journal has about the read.
func (r *Read) Details() map[string]any {
	details := map[string]any{}
	if r.User != "" {
		details["user_sha256"] = Hash(r.User)
	}
	if r.Account != "" {
		details["account_sha256"] = Hash(r.Account)
	}
	if r.Packet != 0 {
		details["packet"] = r.Packet
	}
	return details
}

// MostReads is the most reads of users' data by one reader that the journal records each minute. ReadsEach is how long
// it does not record that the same reader reads the same data again.
const (
	MostReads = 60
	ReadsEach = 10 * time.Minute
)

// Reads limits which reads of users' data the journal records. The zero value is ready to use.
type Reads struct {
	mu   sync.Mutex
	last map[string]time.Time
	rate Denials
}

// Take reports whether the journal should record that who reads this data. If so, skipped is the number of other data
// that who has read since the last recorded read, above MostReads.
func (r *Reads) Take(who, data string) (write bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, key := time.Now(), who+" "+data
	if at, known := r.last[key]; known && now.Sub(at) < ReadsEach {
		return false, 0
	}
	if write, skipped = r.rate.Take(who, MostReads); !write {
		return false, 0
	}
	if r.last == nil || len(r.last) >= denialsKnown {
		r.last = map[string]time.Time{}
	}
	r.last[key] = now
	return true, skipped
}
