package console

import (
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// letterGroup is a group of dead letters on their page: what they are, what is known about their cause, and one advice.
type letterGroup struct {
	model.LetterGroup
	filter model.LetterFilter // selects the group
	To     model.Sentence
	Say    []model.Sentence
	Do     string // a command that helps; empty if there is none
	// Requeue says that this server can deliver the letters again. Main says that this is the next step of the page.
	Requeue, Main bool
}

// Path returns the path of a page about the group's letters.
func (g *letterGroup) Path(page string) string { return lettersPath(page, g.filter) }

// groupViews says of each group what to do, payments first. sinks are nil if their states are not known.
func groupViews(found *model.LetterGroups, f model.LetterFilter, sinks []deliveries.SinkStatus, who *access.Caller) []letterGroup {
	list := make([]letterGroup, len(found.Groups))
	for i := range found.Groups {
		g := &list[i]
		g.LetterGroup, g.filter = found.Groups[i], f
		g.filter.Sink, g.filter.Class = g.Sink, g.Class
		if f.Reason == "" {
			g.filter.Reason = g.Part
		}
		g.To, g.Requeue = deliveryTo(g.Sink), !g.Whole
		var s *deliveries.SinkStatus
		if j := slices.IndexFunc(sinks, func(x deliveries.SinkStatus) bool { return x.Sink == g.Sink }); j >= 0 {
			s = &sinks[j]
		}
		g.advise(s)
	}
	slices.SortStableFunc(list, func(a, b letterGroup) int { return later(&a) - later(&b) })
	for i := range list {
		if list[i].Main = list[i].Main && who.May(access.RequeueLetters) == nil; list[i].Main {
			for j := range list[i+1:] {
				list[i+1+j].Main = false // a page has one next step
			}
		}
	}
	return list
}

func later(g *letterGroup) int {
	if g.Sink == configs.SinkBalance {
		return 0
	}
	return 1
}

// advise says what is known about the cause, and what to do. s is nil if the sink's state is not known.
func (g *letterGroup) advise(s *deliveries.SinkStatus) {
	say := func(text ...model.Sentence) { g.Say = append(g.Say, text...) }
	switch {
	case g.Whole:
		say(model.Say("There is nothing to deliver: workers can't read these entries, or no grab wrote them."),
			model.Say("Find out who can write to Redis, then drop them."))
	case deliveries.Doubtful(&g.LetterGroup):
		say(model.Say("A remote balance system may have booked these credits. Ask its owners first, then confirm each one."))
		g.Do = "hongbao dead confirm"
	case g.Class == hongbao.ClassConflict.String() && g.Sink == configs.SinkKafka:
		say(model.Say("It is not known whether the topic has these grants. A decision about their claim requeues them, too."))
		g.Do = "hongbao claim settle"
	case g.Class == hongbao.ClassConflict.String():
		say(model.Say("They contradict what the sink has. Find out why, before you decide."))
		g.Do = "hongbao audit"
	case g.Class == hongbao.ClassPermanent.String():
		say(model.Say("The sink refused these grants for good. A requeue helps only after the cause is corrected."))
	default:
		say(model.Say("All attempts failed."))
		g.stateOf(s)
	}
	if s != nil && s.Program != "" {
		g.Requeue, g.Main = false, false
		say(model.Say("Only the sink's own program requeues them: %s", string(s.Program)))
	}
}

// stateOf says whether the sink works again.
func (g *letterGroup) stateOf(s *deliveries.SinkStatus) {
	switch {
	case s == nil:
	case s.State == deliveries.SinkWorking:
		g.Main = true
		g.Say = append(g.Say, model.Say("The sink works now: a requeue tries them again."))
	case s.State == deliveries.SinkDown:
		g.Say = append(g.Say, model.Say("The sink is down now: bring its target back before a requeue."))
	}
}

// lettersJudgement is what the page of dead letters says first.
type lettersJudgement struct {
	Level level
	Say   model.Sentence
	More  []model.Sentence
}

// judgeLetters says what the dead letters mean for users. It is crimson if a payment waits.
func judgeLetters(found *model.LetterGroups) lettersJudgement {
	var payments, doubts, others, whole int64
	var sums model.Sums
	for i := range found.Groups {
		switch g := &found.Groups[i]; {
		case g.Whole:
			whole += g.Letters
		case g.Sink != configs.SinkBalance:
			others += g.Letters
		default:
			payments += g.Letters
			sums.AddAll(g.Sums)
			if deliveries.Doubtful(g) {
				doubts += g.Letters
			}
		}
	}
	j := lettersJudgement{Level: levelWait, Say: model.Say("%d grants wait for a decision. None of them is a payment.", others)}
	switch {
	case payments > 0 && len(sums) > 0:
		j.Level, j.Say = levelBad, model.Say("%d wins wait for their payment: %s.", payments, sums)
	case payments > 0:
		j.Level, j.Say = levelBad, model.Say("%d grants wait for the ledger.", payments)
	case others == 0:
		j.Say = model.Say("%d entries wait for a decision.", whole)
		whole = 0
	}
	add := func(n int64, text model.Sentence) {
		if n > 0 {
			j.More = append(j.More, text)
		}
	}
	add(doubts, model.Say("A remote balance system may have paid %d of them.", doubts))
	if payments > 0 {
		add(others, model.Say("%d grants wait for another sink.", others))
	}
	add(whole, model.Say("%d entries can't be read, or no grab wrote them.", whole))
	if found.More {
		j.More = append(j.More, model.Say("There are more letters: these are the first %d.", found.Letters))
	}
	return j
}
