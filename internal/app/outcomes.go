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

// Of returns the counts of a campaign, in the order of hongbao.Outcomes.
func (o *Outcomes) Of(campaign string) []model.Count {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []model.Count
	for _, outcome := range hongbao.Outcomes() {
		if n := o.count[campaign][outcome]; n > 0 {
			list = append(list, model.Count{Name: string(outcome), N: n})
		}
	}
	return list
}
