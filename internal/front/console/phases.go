package console

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
)

// phaseGroup has the campaigns of a page that are in one phase of their life.
type phaseGroup struct {
	Code  string
	Name  model.Sentence
	Rains bool
	List  []listed
}

// listed is a campaign in the list. Rate is grants a second, and Spark its last minute; both only of a campaign that
// runs, where they are known.
type listed struct {
	model.Campaign
	Rate  *float64
	Spark []bar
}

// At returns a time of the campaign for a page.
func (l *listed) At(t time.Time) when { return when{At: t, zone: l.TimeZone} }

// Until returns the end of the window for a page: with its date only if that differs from the first day's.
func (l *listed) Until() when { return when{l.To, l.TimeZone, l.From} }

// phasesOf divides the campaigns of a page by the phase of their life. It leaves out phases without a campaign.
func phasesOf(list []model.Campaign, now time.Time) []phaseGroup {
	all := []phaseGroup{{Code: "raining", Name: model.Say("Raining"), Rains: true}, {Code: "upcoming", Name: model.Say("Upcoming")},
		{Code: "created", Name: model.Say("Not loaded")}, {Code: "over", Name: model.Say("Window over: to close or to refund")},
		{Code: "ended", Name: model.Say("Refunded")}}
	for i := range list {
		c := &list[i]
		at := 3
		switch {
		case c.Status == "refunded":
			at = 4
		case c.Status == "created", c.Status == "loading":
			at = 2
		case c.Runs(now):
			at = 0
		case now.Before(c.From):
			at = 1
		}
		l := listed{Campaign: *c}
		if at == 0 {
			l.Rate, l.Spark = sparkOf(c.Samples)
		}
		all[at].List = append(all[at].List, l)
	}
	groups := all[:0]
	for _, g := range all {
		if len(g.List) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// sparkOf returns the last rate of a campaign, and a bar for each of the last samples; a bar of no height where it is not
// known.
func sparkOf(samples []model.Sample) (last *float64, bars []bar) {
	const most, tall = 60, 24
	r := room{}
	r.note(samples[max(0, len(samples)-most-1):]...)
	top := 1.0
	for _, x := range r.rates {
		if x.Granted != nil {
			top = max(top, *x.Granted)
		}
		last = x.Granted
	}
	for i, x := range r.rates {
		if x.Granted != nil {
			h := tall * *x.Granted / top
			bars = append(bars, bar{X: float64(i + most - len(r.rates)), Y: tall - h, W: 0.8, H: h})
		}
	}
	return last, bars
}
