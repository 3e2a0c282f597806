package console

import (
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// states are the words for the states of campaigns and sinks, and for decisions about dead letters.
var states = map[string]model.Sentence{
	"created": model.Say("Not loaded"), "loading": model.Say("Loading"), "not_started": model.Say("Upcoming"),
	"open": model.Say("Raining"), "paused": model.Say("Paused"), "ended": model.Say("To close"),
	"sold_out": model.Say("Sold out"), "frozen": model.Say("Frozen"), "missing": model.Say("Missing"),
	model.Unread: model.Say("Not read"), "closed": model.Say("To refund"), "refunded": model.Say("Refunded"),
	"working": model.Say("Working"), "no_worker": model.Say("No worker"), "behind": model.Say("Behind"),
	"down": model.Say("Down"), "requeued": model.Say("Requeued"), "dropped": model.Say("Dropped"),
	string(model.Agrees): model.Say("It agrees"), string(model.Differs): model.Say("It differs"),
}

func (t *tongue) state(s string) string { return t.named(states[s], s) }

// named returns a sentence, or the name if there is none.
func (t *tongue) named(s model.Sentence, name string) string {
	if s.Text == "" {
		return name
	}
	return t.printer.Sprintf(s.Text)
}

// outcomes are the words for the outcomes of actions in the journal.
var outcomes = map[access.Outcome]model.Sentence{
	access.OutcomeDone: model.Say("Done"), access.OutcomeDenied: model.Say("Denied"), access.OutcomeRefused: model.Say("Refused"),
	access.OutcomeFailed: model.Say("Failed"), access.OutcomeUnknown: model.Say("Unknown"),
}

func (t *tongue) outcome(o access.Outcome) string { return t.named(outcomes[o], string(o)) }

// action describes an action for people.
func (t *tongue) action(a access.Action) string {
	text := string(a)
	switch i := slices.IndexFunc(access.Rules(), func(r access.Rule) bool { return r.Action == a }); {
	case i >= 0:
		text = t.printer.Sprintf(access.Rules()[i].What)
	case a == access.LogIn:
		text = t.printer.Sprintf(sayLogIn.Text)
	case a == access.LogOut:
		text = t.printer.Sprintf(sayLogOut.Text)
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

var sayLogIn, sayLogOut = model.Say("Log in"), model.Say("Log out")

// answers are the words for the answers to grabs.
var answers = map[string]model.Sentence{
	string(hongbao.OutcomeGranted): model.Say("Won"), string(hongbao.OutcomeAlreadyGranted): model.Say("Has a packet already"),
	string(hongbao.OutcomeLimitReached): model.Say("Over a limit"),
	string(hongbao.OutcomeSoldOut):      model.Say("Came too late: sold out"),
	string(hongbao.OutcomeNotStarted):   model.Say("Too early"), string(hongbao.OutcomeEnded): model.Say("The campaign is over"),
	string(hongbao.OutcomePaused): model.Say("Paused"), string(hongbao.OutcomeBusy): model.Say("Try again: busy"),
	string(hongbao.OutcomeFrozen):    model.Say("Try again: frozen"),
	string(hongbao.OutcomeRefilling): model.Say("Try again: packets are being added"),
	model.AnswerUnavailable:          model.Say("Try again: Redis did not answer"),
	model.AnswerUnknown:              model.Say("Not known: ask again"), model.AnswerRateLimited: model.Say("Refused: too many requests"),
}

func (t *tongue) answer(name string) string { return t.named(answers[name], name) }

// reasons say why a grant is in quarantine.
var reasons = map[model.QuarantineReason]model.Sentence{
	"exists_with_different_user":   model.Say("The ledger has paid this packet to another user"),
	"exists_with_different_amount": model.Say("The ledger has paid this packet with another amount"),
	"exists_with_different_shard":  model.Say("The ledger has this packet from another shard"),
	"exists_with_different_seq":    model.Say("The ledger has this packet from another event"),
	"amount_not_planned":           model.Say("The amount is not the planned one"),
	"packet_not_planned":           model.Say("The plan has no such packet"),
	"unknown_campaign":             model.Say("The ledger has no such campaign"),
	"over_funded":                  model.Say("It is more than what is left of the money"),
	"after_refund":                 model.Say("It came after the refund"),
}

func (t *tongue) reason(r model.QuarantineReason) string { return t.named(reasons[r], string(r)) }

// errorClasses are the words for the classes of errors.
var errorClasses = map[string]model.Sentence{
	hongbao.ClassUnknown.String(): model.Say("unknown"), hongbao.ClassTransient.String(): model.Say("temporary"),
	hongbao.ClassPermanent.String(): model.Say("permanent"), hongbao.ClassConflict.String(): model.Say("contradiction"),
	hongbao.ClassBroken.String(): model.Say("broken"),
}

func (t *tongue) errorClass(class string) string { return t.named(errorClasses[class], class) }

// splits are the words for how a total is split.
var splits = map[hongbao.SplitMode]model.Sentence{
	hongbao.SplitEven: model.Say("even"), hongbao.SplitRandom: model.Say("random"), hongbao.SplitTiers: model.Say("by tiers"),
}

func (t *tongue) split(mode hongbao.SplitMode) string { return t.named(splits[mode], string(mode)) }

// weekdays are the words for the days of a week.
var weekdays = map[time.Weekday]model.Sentence{
	time.Sunday: model.Say("Sunday"), time.Monday: model.Say("Monday"), time.Tuesday: model.Say("Tuesday"),
	time.Wednesday: model.Say("Wednesday"), time.Thursday: model.Say("Thursday"), time.Friday: model.Say("Friday"),
	time.Saturday: model.Say("Saturday"),
}

func (t *tongue) weekday(w when) string {
	return t.named(weekdays[w.At.In(location(w.zone)).Weekday()], "")
}

// limit says how many packets a user, or one value of a fact, gets.
func (t *tongue) limit(l hongbao.Limit) (string, error) {
	user := map[hongbao.Period]model.Sentence{
		hongbao.PerCampaign: model.Say("Each user gets at most %d packets.", l.Max),
		hongbao.PerDay:      model.Say("Each user gets at most %d packets a day.", l.Max),
		hongbao.PerHour:     model.Say("Each user gets at most %d packets an hour.", l.Max),
	}
	fact := map[hongbao.Period]model.Sentence{
		hongbao.PerCampaign: model.Say("Each %s gets at most %d packets.", l.By, l.Max),
		hongbao.PerDay:      model.Say("Each %s gets at most %d packets a day.", l.By, l.Max),
		hongbao.PerHour:     model.Say("Each %s gets at most %d packets an hour.", l.By, l.Max),
	}
	if l.By == hongbao.ByUser {
		return t.say(user[l.Per])
	}
	return t.say(fact[l.Per])
}
