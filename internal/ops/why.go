package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
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
	// Nothing is the sentence for the console if there is no grant.
	Nothing model.Sentence `json:"-"`
}

// CheckRead returns an error if a store could not be read. It names these stores.
func (w *Why) CheckRead() error {
	var errs []error
	for _, u := range w.Unread {
		errs = append(errs, hongbao.Outagef(hongbao.ClassTransient, "%s could not be asked: %s", u.Where, u.Why))
	}
	return errors.Join(errs...)
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

// deed is what a sink does with a grant.
type deed struct{ done, not, notYet, perhaps model.Sentence }

var (
	paid      = deed{model.Say("paid"), model.Say("not paid"), model.Say("not paid yet"), model.Say("perhaps paid")}
	announced = deed{model.Say("announced"), model.Say("not announced"), model.Say("not announced yet"), model.Say("perhaps announced")}
)

func deliveredTo(sink string) deed {
	return deed{model.Say("delivered to %s", sink), model.Say("not delivered to %s", sink), model.Say("not delivered to %s yet", sink),
		model.Say("perhaps delivered to %s", sink)}
}

// part is what one sink did with a grant: the clause of the sentence, and the step.
type part struct {
	state  WhyState
	clause model.Sentence
	step   WhyStep
}

// did is the part of a sink that has delivered.
func did(clause, name model.Sentence, at *time.Time, say model.Sentence) part {
	return part{WhyDelivered, clause, step(WhyDelivered, at, name.String(), name, say)}
}

func step(state WhyState, at *time.Time, code string, name, say model.Sentence) WhyStep {
	return WhyStep{at, code, say.String(), state, name, say}
}

// verbatim is a text that stays as it is in all languages.
func verbatim(text string) model.Sentence { return model.Sentence{Text: "%s", Args: []any{text}} }

// Explain says in words what a trail shows: that of a user, or that of a packet if user is empty.
func Explain(t *find.Trail, user string) *Why {
	e := explainer{t, time.UTC}
	out := &Why{Campaign: t.Campaign, User: user, Grants: []WhyGrant{}, Unread: t.Unread}
	if t.Terms != nil {
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
	text := fmt.Sprintf("%s won %s", user, plural.Of(len(grants), "packet"))
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
	if e.Currency != "" {
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
	return out
}

func (e explainer) noReceipt() model.Sentence {
	if why, unread := e.unreadWhy(inRedis); unread {
		return model.Say("Redis could not be read: %s", why)
	}
	return model.Say("the campaign has left Redis, or Redis lost the receipt")
}

// parts returns what each sink did with a grant.
func (e explainer) parts(s *find.TrailStep, g *find.TrailGrant) (list []part) {
	if len(s.Sinks) == 0 { // the shard could not be read, so the deployment's sinks are not known
		if s.Ledger != nil {
			list = append(list, e.paid(s, g))
		}
		why, _ := e.unreadWhy(inRedis)
		return append(list, part{WhyUnknown, model.Say("the rest is not known: Redis could not be asked"),
			step(WhyUnknown, nil, "unknown", model.Say("unknown"), verbatim(why))})
	}
	for i := range s.Sinks {
		x := &s.Sinks[i]
		switch {
		case x.Sink == configs.SinkBalance && s.Ledger != nil:
			list = append(list, e.paid(s, g))
		case x.Sink == configs.SinkBalance:
			list = append(list, e.unpaid(s, x))
		case x.Sink != configs.SinkKafka:
			list = append(list, e.delivered(x))
		case s.Topic != nil:
			list = append(list, e.announced(s.Topic, g))
		default:
			list = append(list, e.unannounced(x))
		}
	}
	return list
}

// paid is the payment that the ledger has booked.
func (e explainer) paid(s *find.TrailStep, g *find.TrailGrant) part {
	clause := paid.done
	if s.Paid != nil {
		clause = e.after(paid.done, g.Time, *s.Paid)
	}
	return did(clause, paid.done, s.Paid, model.Say("booked in the ledger"))
}

// announced says when the topic got the record of a grant.
func (e explainer) announced(at *find.TrailRecord, g *find.TrailGrant) part {
	return did(e.after(announced.done, g.Time, at.Time), announced.done, &at.Time,
		model.Say("partition %d, offset %s", at.Partition, strconv.FormatInt(at.Offset, 10)))
}

// after says how long after a grant something happened.
func (e explainer) after(what model.Sentence, granted, at time.Time) model.Sentence {
	switch late := at.Sub(granted); {
	case late < 0: // the clocks differ
		return what
	case late < 50*time.Millisecond:
		return model.Say("%s at once", what)
	case late < time.Minute:
		return model.Say("%s %s s later", what, strconv.FormatFloat(late.Seconds(), 'f', 1, 64))
	}
	return model.Say("%s at %s", what, e.day(at))
}

// unpaid says why the ledger has not booked a grant.
func (e explainer) unpaid(s *find.TrailStep, x *find.TrailSink) part {
	if why, unread := e.unreadWhy(inLedger); unread {
		return unsure(paid, e.since(model.Say("the ledger could not be asked"), x), verbatim(why))
	}
	switch q := s.Quarantine; {
	case q != nil && q.Resolution != "":
		return not(paid, WhyGivenUp, model.Say("%s decided in quarantine %s: %s", q.ResolvedBy, strconv.FormatInt(q.ID, 10), q.Resolution), none)
	case q != nil:
		return not(paid, WhyPerson, model.Say("it is in quarantine: %s", strings.ReplaceAll(string(q.Reason), "_", " ")),
			model.Say("a person decides: %s", "hongbao quarantine show "+strconv.FormatInt(q.ID, 10)))
	case s.Asking != "":
		return not(paid, WhyWaiting, model.Say("the balance system was asked, and its answer is not known yet"),
			model.Say("worker %s asks", s.Asking))
	}
	return e.undelivered(paid, verbatim("hongbao quarantine list --all, hongbao audit"), x)
}

// unannounced says why the topic does not have a grant's record.
func (e explainer) unannounced(x *find.TrailSink) part {
	why, unread := e.unreadWhy(inTopic)
	_, silent := e.unreadWhy(inRedis)
	switch {
	case !unread && x.Finished && !silent && x.Letter == "" && x.Dropped == "":
		return did(announced.done, announced.done, nil, model.Say("sink %s has finished it, and the topic no longer has its record", x.Sink))
	case !unread || x.Letter != "" || x.Dropped != "" || x.NotOwed:
		return e.undelivered(announced, none, x)
	case x.Finished && silent:
		return unsure(announced, model.Say("neither Kafka nor Redis' dead letters could be asked"), verbatim(why))
	case x.Finished:
		return did(announced.done, announced.done, nil, model.Say("sink %s has finished it; the topic could not be read: %s", x.Sink, why))
	}
	if x.State == deliveries.SinkPaused || x.State == deliveries.SinkNoWorker {
		return e.undelivered(announced, none, x)
	}
	return not(announced, WhyWaiting, e.since(model.Say("Kafka could not be asked"), x), model.Say("the topic could not be read: %s", why))
}

// delivered says whether a webhook or a sink of the user's own has a grant. Only the sink's done bit shows it.
func (e explainer) delivered(x *find.TrailSink) part {
	what := deliveredTo(x.Sink)
	_, silent := e.unreadWhy(inRedis)
	if x.Finished && !silent && x.Letter == "" && x.Dropped == "" && !x.NotOwed {
		return did(what.done, what.done, nil, model.Say("the receiver has confirmed it"))
	}
	return e.undelivered(what, none, x)
}

// since adds since when grants wait for a sink, if that is known.
func (e explainer) since(why model.Sentence, x *find.TrailSink) model.Sentence {
	if x.Since == nil {
		return why
	}
	return model.Say("%s, and grants have waited since %s", why, model.Instant{At: *x.Since, Zone: e.zone.String(), Short: true})
}

// undelivered says why a sink has not delivered a grant. odd are the commands that say more if the sink has finished
// the grant all the same.
func (e explainer) undelivered(what deed, odd model.Sentence, x *find.TrailSink) part {
	silence, silent := e.unreadWhy(inRedis)
	switch {
	case x.Letter != "":
		return not(what, WhyPerson, model.Say("it is a dead letter: %s", x.Reason), model.Say("a person decides: %s", "hongbao dead show "+x.Letter))
	case x.Dropped != "":
		return not(what, WhyGivenUp, model.Say("its dead letter was dropped by %s", x.Dropped), none)
	case x.NotOwed:
		return not(what, WhyGivenUp, model.Say("sink %s does not owe it", x.Sink), model.Say("the sink was added later, or was removed at that time"))
	case x.Finished && silent:
		return unsure(what, model.Say("Redis' dead letters could not be asked"), verbatim(silence))
	case x.Finished:
		return not(what, WhyPerson, model.Say("although sink %s has finished it", x.Sink), odd)
	}
	switch x.State {
	case deliveries.SinkPaused:
		return not(what, WhyWaiting, model.Say("sink %s is %s", x.Sink, x.Why), verbatim("hongbao sink resume "+x.Sink))
	case deliveries.SinkNoWorker:
		return not(what, WhyWaiting, model.Say("no worker runs for sink %s", x.Sink), verbatim(x.Why))
	case deliveries.SinkDown, deliveries.SinkBehind, deliveries.SinkUnread:
		return not(what, WhyWaiting, model.Say("at sink %s %s", x.Sink, x.Why), verbatim("hongbao status, hongbao doctor"))
	case deliveries.SinkWorking:
		return not(what, WhyWaiting, model.Say("it waits, and sink %s works", x.Sink), none)
	}
	return not(what, WhyWaiting, model.Say("Redis could not be asked why"), verbatim(silence))
}

// none is an empty sentence.
var none model.Sentence

// or returns the first sentence that is not empty; none has no text.
func or(text, why model.Sentence) model.Sentence {
	if text.String() == "" {
		return why
	}
	return text
}

// not is the part of a sink that has not delivered.
func not(what deed, state WhyState, why, text model.Sentence) part {
	name := what.not
	if state == WhyWaiting {
		name = what.notYet
	}
	return part{state, model.Say("%s: %s", name, why), step(state, nil, what.not.String(), what.not, or(text, why))}
}

// unsure is the part of a sink that may have delivered.
func unsure(what deed, why, text model.Sentence) part {
	return part{WhyUnknown, model.Say("%s: %s", what.perhaps, why),
		step(WhyUnknown, nil, what.done.String()+"?", what.perhaps, or(text, why))}
}
