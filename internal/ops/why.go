package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// ShowTrail implements Operations. It asks for the grants of a user.
func (r *Remote) ShowTrail(ctx context.Context, in TrailOf) (*find.Trail, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	q, out := url.Values{}, &find.Trail{}
	if in.User != "" {
		q.Set("user", in.User)
	}
	if in.Packet != 0 {
		q.Set("packet", fmt.Sprint(in.Packet))
	}
	return out, r.get(ctx, "/v1/campaigns/"+url.PathEscape(in.Campaign)+"/trail", q, out)
}

// Why says in words what became of a user's grabs in a campaign. It claims only what the trail knows.
type Why struct {
	Campaign string        `json:"campaign"`
	User     string        `json:"user"`
	Sentence string        `json:"sentence"`
	TimeZone string        `json:"time_zone,omitempty"`
	Grants   []WhyGrant    `json:"grants"`
	Unread   []find.Unread `json:"unread"`
	// Codes says that the campaign's packets have coupon codes. A trail has none.
	Codes bool `json:"-"`
	// Nothing is the sentence for the console if there is no grant.
	Nothing model.Sentence `json:"-"`
}

// CheckRead returns an error if a store could not be read. It names these stores, and says why unless a step does.
func (w *Why) CheckRead() error {
	var errs []error
	for _, u := range w.Unread {
		why := u.Why
		if w.says(why) {
			why = "the steps say why"
		}
		errs = append(errs, hongbao.Outagef(hongbao.ClassTransient, "%s could not be asked: %s", u.Where, why))
	}
	return errors.Join(errs...)
}

// says reports whether the text of a step contains a text.
func (w *Why) says(text string) bool {
	return slices.ContainsFunc(w.Grants, func(g WhyGrant) bool {
		return slices.ContainsFunc(g.Steps, func(s WhyStep) bool { return strings.Contains(s.Text, text) })
	})
}

// WhyGrant is one of the user's grants.
type WhyGrant struct {
	Packet   int64     `json:"packet"`
	State    WhyState  `json:"state"`
	Sentence string    `json:"sentence"`
	Steps    []WhyStep `json:"steps"`
	// Clauses are the parts of the sentence for the console.
	Clauses []model.Sentence `json:"-"`
}

// WhyStep is a step of a grant. At is nil if the time of the step is unknown, or if it has not happened.
type WhyStep struct {
	At   *time.Time `json:"at"`
	Step string     `json:"step"`
	Text string     `json:"text"`
	// State, Name and Say are for the console.
	State WhyState       `json:"-"`
	Name  model.Sentence `json:"-"`
	Say   model.Sentence `json:"-"`
}

// WhyState sums up a grant in a word.
type WhyState string

// The states of a grant, the best first. A grant has the last of them that applies to any of its sinks.
const (
	WhyDelivered WhyState = "delivered"
	WhyGivenUp   WhyState = "given_up" // a person decided that a sink does not get it
	WhyWaiting   WhyState = "waiting"
	WhyUnknown   WhyState = "unknown"
	WhyPerson    WhyState = "needs_a_person"
)

var whyStates = []WhyState{WhyDelivered, WhyGivenUp, WhyWaiting, WhyUnknown, WhyPerson}

// The stores of app.Unread.
const inRedis, inLedger, inTopic = "redis", "ledger", "topic"

// Explain says in words what a trail shows: that of a user, or that of a packet if user is empty.
func Explain(t *find.Trail, user string) *Why {
	e := explainer{t, time.UTC}
	out := &Why{Campaign: t.Campaign, User: user, Grants: []WhyGrant{}, Unread: t.Unread}
	if t.Terms != nil {
		out.Codes = t.Terms.Codes
		if zone, err := time.LoadLocation(t.Terms.TimeZone); err == nil {
			e.zone, out.TimeZone = zone, t.Terms.TimeZone
		}
	}
	if t.Kept != "" { // nothing is wrong with the ledger: its grants are in a file
		out.Unread = slices.DeleteFunc(slices.Clone(t.Unread), func(u find.Unread) bool { return u.Where == inLedger })
	}
	for i := range t.Steps {
		out.Grants = append(out.Grants, e.grant(&t.Steps[i], cmp.Or(user, wonIn(&t.Steps[i]).User)))
	}
	switch n := len(out.Grants); n {
	case 0:
		out.Nothing = e.nothing(user)
		out.Sentence = out.Nothing.String()
	case 1:
		out.Sentence = out.Grants[0].Sentence
	default:
		out.Sentence = e.several(user, out.Grants)
	}
	if n := int64(len(out.Grants)); n > 0 && t.Terms != nil && n >= t.Terms.MostHeld && t.State == "open" {
		out.Sentence += fmt.Sprintf(" %s is at the limit of %s: further grabs are refused.", user,
			plural.Of(t.Terms.MostHeld, "packet"))
	}
	return out
}

type explainer struct {
	*find.Trail
	zone *time.Location
}

// day is a time in the campaign's zone.
func (e explainer) day(t time.Time) model.Instant { return model.Instant{At: t, Zone: e.zone.String()} }

// unreadWhy returns why a store could not be read; false if it was read.
func (e explainer) unreadWhy(where string) (string, bool) {
	i := slices.IndexFunc(e.Unread, func(u find.Unread) bool { return u.Where == where })
	if i < 0 {
		return "", false
	}
	return e.Unread[i].Why, true
}

// several sums up more than one grant.
func (e explainer) several(user string, grants []WhyGrant) string {
	var sum hongbao.Amount
	count := map[WhyState]int{}
	for i := range grants {
		sum += wonIn(&e.Steps[i]).Amount
		count[grants[i].State]++
	}
	prize := "packet"
	if e.coupons() {
		prize = "coupon"
	}
	text := fmt.Sprintf("%s won %s", user, plural.Of(len(grants), prize))
	if e.Currency != "" {
		text += ", " + money.Text(sum, e.Currency) + " in all"
	}
	var parts []string
	for _, s := range whyStates {
		if n := count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, stateWords(s, n)))
		}
	}
	return text + ": " + strings.Join(parts, ", ") + "."
}

// stateWords says in which state n grants are.
func stateWords(s WhyState, n int) string {
	switch s {
	case WhyGivenUp:
		return "given up by a person"
	case WhyWaiting:
		return plural.Verb(n, "waits", "wait")
	case WhyUnknown:
		return "not known in full"
	case WhyPerson:
		return plural.Verb(n, "needs a person", "need a person")
	default:
		return string(s)
	}
}

// wonIn returns the grant as the receipt has it, or else as the ledger has it.
func wonIn(s *find.TrailStep) *find.TrailGrant {
	return cmp.Or(s.Receipt, s.Ledger, &find.TrailGrant{})
}

// grant explains one grant.
func (e explainer) grant(s *find.TrailStep, user string) WhyGrant {
	g := wonIn(s)
	first := model.Say("%s won packet %d at %s", user, s.Packet, e.day(g.Time))
	about := model.Say("packet %d, event %s", s.Packet, g.Event)
	switch {
	case e.coupons():
		first = model.Say("%s won coupon %d at %s", user, s.Packet, e.day(g.Time))
		about = model.Say("coupon %d, event %s", s.Packet, g.Event)
	case e.Currency != "":
		prize := model.Sums{{Currency: e.Currency, Amount: g.Amount}}
		first = model.Say("%s won %s at %s", user, prize, e.day(g.Time))
		about = model.Say("%s, packet %d, event %s", prize, s.Packet, g.Event)
	}
	if g.RequestID != "" {
		about = model.Say("%s, request %s", about, g.RequestID)
	}
	if s.Receipt == nil {
		about = model.Say("%s; only the ledger has it: %s", about, e.noReceipt())
	}
	out := WhyGrant{Packet: s.Packet, State: WhyDelivered, Clauses: []model.Sentence{first},
		Steps: []WhyStep{step(WhyDelivered, &g.Time, "won", model.Say("won"), about)}}
	clauses := []string{first.String()}
	for _, p := range e.parts(s, g) {
		out.Clauses, out.Steps = append(out.Clauses, p.clause), append(out.Steps, p.step)
		clauses = append(clauses, p.clause.String())
		if slices.Index(whyStates, p.state) > slices.Index(whyStates, out.State) {
			out.State = p.state
		}
	}
	out.Sentence = strings.TrimSuffix(strings.Join(clauses, ", "), ".") + "."
	slices.SortStableFunc(out.Steps[1:], byTime)
	return out
}

// byTime sorts steps by their times. Those without a time come last.
func byTime(a, b WhyStep) int {
	switch {
	case a.At != nil && b.At != nil:
		return a.At.Compare(*b.At)
	case a.At != nil:
		return -1
	case b.At != nil:
		return 1
	}
	return 0
}

// coupons reports whether the packets are coupons without a value.
func (e explainer) coupons() bool {
	return e.Currency == "" && e.Terms != nil && e.Terms.Kind == hongbao.KindCoupon
}

func (e explainer) noReceipt() model.Sentence {
	if why, unread := e.unreadWhy(inRedis); unread {
		return model.Say("Redis could not be read: %s", why)
	}
	return model.Say("the campaign has left Redis, or Redis lost the receipt")
}
