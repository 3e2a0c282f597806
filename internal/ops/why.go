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
	"github.com/hongbao-project/hongbao/internal/configs"
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
}

// WhyStep is a step of a grant. At is nil if the time of the step is unknown, or if it has not happened.
type WhyStep struct {
	At   *time.Time `json:"at"`
	Step string     `json:"step"`
	Text string     `json:"text"`
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

// The words for what a sink does, and the stores of app.Unread.
const (
	paid, announced            = "paid", "announced"
	inRedis, inLedger, inTopic = "redis", "ledger", "topic"
)

// part is what one sink did with a grant: the clause of the sentence, and the step.
type part struct {
	state  WhyState
	clause string
	step   WhyStep
}

// Explain says in words what a user's trail shows.
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
		out.Grants = append(out.Grants, e.grant(&t.Steps[i], user))
	}
	switch n := len(out.Grants); n {
	case 0:
		out.Sentence = e.nothing(user)
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

// day formats a time with its day and its zone.
func (e explainer) day(t time.Time) string {
	return t.In(e.zone).Format("2006-01-02 15:04:05") + " (" + e.zone.String() + ")"
}

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
	prize := fmt.Sprintf("packet %d", s.Packet)
	about := prize
	if e.Currency != "" {
		prize = money.Text(g.Amount, e.Currency)
		about = prize + ", " + about
	}
	about += ", event " + g.Event
	if g.RequestID != "" {
		about += ", request " + g.RequestID
	}
	if s.Receipt == nil {
		about += "; only the ledger has it: " + e.noReceipt()
	}
	out := WhyGrant{Packet: s.Packet, State: WhyDelivered, Steps: []WhyStep{{&g.Time, "won", about}}}
	clauses := []string{fmt.Sprintf("%s won %s at %s", user, prize, e.day(g.Time))}
	for _, p := range e.parts(s, g) {
		clauses, out.Steps = append(clauses, p.clause), append(out.Steps, p.step)
		if slices.Index(whyStates, p.state) > slices.Index(whyStates, out.State) {
			out.State = p.state
		}
	}
	out.Sentence = strings.TrimSuffix(strings.Join(clauses, ", "), ".") + "."
	return out
}

func (e explainer) noReceipt() string {
	if why, unread := e.unreadWhy(inRedis); unread {
		return "Redis could not be read: " + why
	}
	return "the campaign has left Redis, or Redis lost the receipt"
}

// parts returns what each sink did with a grant.
func (e explainer) parts(s *find.TrailStep, g *find.TrailGrant) (list []part) {
	if len(s.Sinks) == 0 { // the shard could not be read, so the deployment's sinks are not known
		if s.Ledger != nil {
			list = append(list, e.paid(s, g))
		}
		why, _ := e.unreadWhy(inRedis)
		return append(list, part{WhyUnknown, "the rest is not known: Redis could not be asked", WhyStep{nil, "unknown", why}})
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
	p := part{WhyDelivered, paid, WhyStep{s.Paid, paid, "booked in the ledger"}}
	if s.Paid != nil {
		p.clause += e.after(g.Time, *s.Paid)
	}
	return p
}

// announced says when the topic got the record of a grant.
func (e explainer) announced(at *find.TrailRecord, g *find.TrailGrant) part {
	return part{WhyDelivered, announced + e.after(g.Time, at.Time), WhyStep{&at.Time, announced,
		fmt.Sprintf("partition %d, offset %d", at.Partition, at.Offset)}}
}

// after says how long after a grant something happened.
func (e explainer) after(granted, at time.Time) string {
	switch late := at.Sub(granted); {
	case late < 0: // the clocks differ
		return ""
	case late < 50*time.Millisecond:
		return " at once"
	case late < time.Minute:
		return fmt.Sprintf(" %.1f s later", late.Seconds())
	}
	return " at " + e.day(at)
}

// unpaid says why the ledger has not booked a grant.
func (e explainer) unpaid(s *find.TrailStep, x *find.TrailSink) part {
	if why, unread := e.unreadWhy(inLedger); unread {
		return unsure(paid, "the ledger could not be asked"+e.since(x), why)
	}
	switch q := s.Quarantine; {
	case q != nil && q.Resolution != "":
		return not(paid, WhyGivenUp, fmt.Sprintf("%s decided in quarantine %d: %s", q.ResolvedBy, q.ID, q.Resolution), "")
	case q != nil:
		return not(paid, WhyPerson, "it is in quarantine: "+strings.ReplaceAll(string(q.Reason), "_", " "),
			fmt.Sprintf("a person decides: hongbao quarantine show %d", q.ID))
	case s.Asking != "":
		return not(paid, WhyWaiting, "the balance system was asked, and its answer is not known yet",
			"worker "+s.Asking+" asks")
	}
	return e.undelivered(paid, "hongbao quarantine list --all, hongbao audit", x)
}

// unannounced says why the topic does not have a grant's record.
func (e explainer) unannounced(x *find.TrailSink) part {
	why, unread := e.unreadWhy(inTopic)
	_, silent := e.unreadWhy(inRedis)
	switch {
	case !unread && x.Finished && !silent && x.Letter == "" && x.Dropped == "":
		return part{WhyDelivered, announced, WhyStep{nil, announced,
			"sink " + x.Sink + " has finished it, and the topic no longer has its record"}}
	case !unread || x.Letter != "" || x.Dropped != "" || x.NotOwed:
		return e.undelivered(announced, "", x)
	case x.Finished && silent:
		return unsure(announced, "neither Kafka nor Redis' dead letters could be asked", why)
	case x.Finished:
		return part{WhyDelivered, announced, WhyStep{nil, announced, "sink " + x.Sink +
			" has finished it; the topic could not be read: " + why}}
	}
	if x.State == deliveries.SinkPaused || x.State == deliveries.SinkNoWorker {
		return e.undelivered(announced, "", x)
	}
	return not(announced, WhyWaiting, "Kafka could not be asked"+e.since(x), "the topic could not be read: "+why)
}

// delivered says whether a webhook or a sink of the user's own has a grant. Only the sink's done bit shows it.
func (e explainer) delivered(x *find.TrailSink) part {
	what := "delivered to " + x.Sink
	_, silent := e.unreadWhy(inRedis)
	if x.Finished && !silent && x.Letter == "" && x.Dropped == "" && !x.NotOwed {
		return part{WhyDelivered, what, WhyStep{nil, what, "the receiver has confirmed it"}}
	}
	return e.undelivered(what, "", x)
}

// since says since when grants wait for a sink; "" if that is not known.
func (e explainer) since(x *find.TrailSink) string {
	if x.Since == nil {
		return ""
	}
	return ", and grants have waited since " + x.Since.In(e.zone).Format(time.TimeOnly)
}

// undelivered says why a sink has not delivered a grant. odd are the commands that say more if the sink has finished
// the grant all the same.
func (e explainer) undelivered(what, odd string, x *find.TrailSink) part {
	silence, silent := e.unreadWhy(inRedis)
	switch {
	case x.Letter != "":
		return not(what, WhyPerson, "it is a dead letter: "+x.Reason, "a person decides: hongbao dead show "+x.Letter)
	case x.Dropped != "":
		return not(what, WhyGivenUp, "its dead letter was dropped by "+x.Dropped, "")
	case x.NotOwed:
		return not(what, WhyGivenUp, "sink "+x.Sink+" does not owe it",
			"the sink was added later, or was removed at that time")
	case x.Finished && silent:
		return unsure(what, "Redis' dead letters could not be asked", silence)
	case x.Finished:
		return not(what, WhyPerson, "although sink "+x.Sink+" has finished it", odd)
	}
	switch x.State {
	case deliveries.SinkPaused:
		return not(what, WhyWaiting, "sink "+x.Sink+" is "+x.Why, "hongbao sink resume "+x.Sink)
	case deliveries.SinkNoWorker:
		return not(what, WhyWaiting, "no worker runs for sink "+x.Sink, x.Why)
	case deliveries.SinkDown, deliveries.SinkBehind, deliveries.SinkUnread:
		return not(what, WhyWaiting, "at sink "+x.Sink+" "+x.Why, "hongbao status, hongbao doctor")
	case deliveries.SinkWorking:
		return not(what, WhyWaiting, "it waits, and sink "+x.Sink+" works", "")
	}
	return not(what, WhyWaiting, "Redis could not be asked why", silence)
}

// not is the part of a sink that has not delivered. what is paid or announced.
func not(what string, state WhyState, why, text string) part {
	clause := "not " + what
	if state == WhyWaiting {
		clause += " yet"
	}
	return part{state, clause + ": " + why, WhyStep{nil, "not " + what, cmp.Or(text, why)}}
}

// unsure is the part of a sink that may have delivered.
func unsure(what, why, text string) part {
	return part{WhyUnknown, "perhaps " + what + ": " + why, WhyStep{nil, what + "?", cmp.Or(text, why)}}
}
