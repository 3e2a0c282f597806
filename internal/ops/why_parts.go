package ops

import (
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// deed is what a sink does with a grant.
type deed struct{ done, not, notYet, perhaps model.Sentence }

var (
	paid      = deed{model.Say("paid"), model.Say("not paid"), model.Say("not paid yet"), model.Say("perhaps paid")}
	recorded  = deed{model.Say("recorded"), model.Say("not recorded"), model.Say("not recorded yet"), model.Say("perhaps recorded")}
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

// booked is what the ledger does with a grant: it pays money, and records a coupon without a value.
func (e explainer) booked() deed {
	if e.coupons() {
		return recorded
	}
	return paid
}

// paid is the payment that the ledger has booked.
func (e explainer) paid(s *find.TrailStep, g *find.TrailGrant) part {
	done := e.booked().done
	clause := done
	if s.Paid != nil {
		clause = e.after(done, g.Time, *s.Paid)
	}
	return did(clause, done, s.Paid, model.Say("booked in the ledger"))
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
		return unsure(e.booked(), e.since(model.Say("the ledger could not be asked"), x), verbatim(why))
	}
	switch q := s.Quarantine; {
	case q != nil && q.Resolution != "":
		return not(e.booked(), WhyGivenUp, model.Say("%s decided in quarantine %s: %s", q.ResolvedBy, strconv.FormatInt(q.ID, 10), q.Resolution), none)
	case q != nil:
		return not(e.booked(), WhyPerson, model.Say("it is in quarantine: %s", strings.ReplaceAll(string(q.Reason), "_", " ")),
			model.Say("a person decides: %s", "hongbao quarantine show "+strconv.FormatInt(q.ID, 10)))
	case s.Asking != "":
		return not(e.booked(), WhyWaiting, model.Say("the balance system was asked, and its answer is not known yet"),
			model.Say("worker %s asks", s.Asking))
	}
	return e.undelivered(e.booked(), verbatim("hongbao quarantine list --all, hongbao audit"), x)
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
	silence := e.since(model.Say("Kafka could not be asked"), x)
	if x.DownSince != nil { // neither a worker nor this process reaches it
		silence = model.Say("Kafka has been down since %s", e.short(*x.DownSince))
	}
	return not(announced, WhyWaiting, silence, model.Say("the topic could not be read: %s", why))
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
	return model.Say("%s, and grants have waited since %s", why, e.short(*x.Since))
}

// short is a time of day in the campaign's zone.
func (e explainer) short(t time.Time) model.Instant {
	return model.Instant{At: t, Zone: e.zone.String(), Short: true}
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
	if x.DownSince != nil {
		return not(what, WhyWaiting, model.Say("sink %s has not been able to deliver since %s", x.Sink, e.short(*x.DownSince)),
			model.Say("at sink %s %s", x.Sink, x.Why))
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
