package deliveries

import (
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Doubtful reports whether a remote balance system may have paid the grants of a group.
func Doubtful(g *model.LetterGroup) bool {
	return g.Sink == configs.SinkBalance && g.Class == hongbao.ClassConflict.String() && !g.Whole
}

// sinksOf returns the sinks of the groups that have grants, payments first, and how many letters have none.
func sinksOf(groups []model.LetterGroup) (sinks []string, whole int64) {
	for i := range groups {
		switch g := &groups[i]; {
		case g.Whole:
			whole += g.Letters
		case slices.Contains(sinks, g.Sink):
		case g.Sink == configs.SinkBalance:
			sinks = slices.Insert(sinks, 0, g.Sink)
		default:
			sinks = append(sinks, g.Sink)
		}
	}
	return sinks, whole
}

// WhatRequeueDoes says what a requeue of letters does.
func WhatRequeueDoes(groups []model.LetterGroup) (say []model.Sentence) {
	sinks, whole := sinksOf(groups)
	for _, sink := range sinks {
		switch sink {
		case configs.SinkBalance:
			say = append(say, model.Say("Hongbao tries again to pay these grants. What the ledger has is not paid again."),
				model.Say("If you have paid a user in another way, drop that letter: a requeue can pay again."))
		case configs.SinkKafka:
			say = append(say, model.Say("The topic gets these grants. What it has already is not published again."))
		default:
			say = append(say, model.Say("Sink %s gets these grants. It may have got some of them before.", sink))
		}
	}
	if whole > 0 {
		say = append(say, model.Say("%d entries have nothing to deliver: they stay until they are dropped.", whole))
	}
	return append(say, model.Say("A letter that its sink refuses again stays."))
}

// WhatDropDoes says what a drop of letters does to the money and to readers.
func WhatDropDoes(groups []model.LetterGroup) (say []model.Sentence) {
	var doubts int64
	for i := range groups {
		if Doubtful(&groups[i]) {
			doubts += groups[i].Letters
		}
	}
	sinks, whole := sinksOf(groups)
	for _, sink := range sinks {
		switch sink {
		case configs.SinkBalance:
			say = append(say, model.Say("Hongbao never pays these grants. Their money stays with the campaign, and its refund returns it to the sponsor. "+
				"That refund needs %s on the command line.", "--missing"))
		case configs.SinkKafka:
			say = append(say, model.Say("The topic never gets these grants. Payments do not depend on it."))
		default:
			say = append(say, model.Say("Sink %s never gets these grants. Payments do not depend on it.", sink))
		}
	}
	if whole > 0 {
		say = append(say, model.Say("%d entries have nothing to deliver: a drop only removes them.", whole))
	}
	if doubts > 0 {
		say = append(say, model.Say("A remote balance system may have paid %d of them. Ask its owners first: a drop returns the money to the "+
			"sponsor, also if the user has it.", doubts))
	}
	return append(say, model.Say("This can't be undone."))
}
