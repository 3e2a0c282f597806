package app

import (
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Outcomes counts this process's answers to grabs, by campaign. It is safe for concurrent use.
type Outcomes struct {
	mu    sync.Mutex
	count map[string]map[hongbao.Outcome]int64
}

// maxCounted bounds how many campaigns are counted. One more campaign resets all counts.
const maxCounted = 10_000

// Add counts an answer. It does not count unknown_campaign, because callers can make up campaign names.
func (o *Outcomes) Add(campaign string, outcome hongbao.Outcome) {
	if outcome == hongbao.OutcomeUnknownCampaign {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil || len(o.count) >= maxCounted && o.count[campaign] == nil {
		o.count = map[string]map[hongbao.Outcome]int64{}
	}
	if o.count[campaign] == nil {
		o.count[campaign] = map[hongbao.Outcome]int64{}
	}
	o.count[campaign][outcome]++
}

// The names under which failed grabs are counted; the API answers with problems of these codes.
const (
	unavailable    hongbao.Outcome = "unavailable"
	outcomeUnknown hongbao.Outcome = "outcome_unknown"
)

// Fail counts a grab that ended with an error, if an answer of its campaign was counted before: callers can make up
// campaign names. It does not count a grab that is malformed.
func (o *Outcomes) Fail(campaign string, err error) {
	o.mu.Lock()
	known := o.count[campaign] != nil
	o.mu.Unlock()
	if !known {
		return
	}
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient, hongbao.ClassBroken:
		o.Add(campaign, unavailable)
	case hongbao.ClassUnknown:
		o.Add(campaign, outcomeUnknown)
	case hongbao.ClassPermanent, hongbao.ClassConflict:
	}
}

// Of returns the counts of a campaign, in the order of hongbao.Outcomes, and then those of failed grabs.
func (o *Outcomes) Of(campaign string) []model.AnswerCount {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []model.AnswerCount
	for _, outcome := range append(hongbao.Outcomes(), unavailable, outcomeUnknown) {
		if n := o.count[campaign][outcome]; n > 0 {
			list = append(list, model.AnswerCount{Name: string(outcome), N: n})
		}
	}
	return list
}
