package console

import (
	"strings"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// rainView is the data of the page of a campaign for a stage. It has no money unless its address asks for it.
type rainView struct {
	*campaignView
	Money bool
}

// Shown is the number of granted packets, as it was read last; a dash if it was never read.
func (v rainView) Shown() string {
	switch {
	case v.Known():
		return count(v.Granted)
	case v.Seen != nil:
		return count(*v.Seen.Granted)
	}
	return "–"
}

// Wide is the width of the number in the units of its drawing: enough for the bold digits of any usual font.
func (v rainView) Wide() int {
	text := v.Shown()
	commas := strings.Count(text, ",")
	return 72*max(utf8.RuneCountInString(text)-commas, 3) + 42*commas
}

// rainOf returns the path of the campaign for the path of its page for a stage, and whether that shows money. Any other
// path stays as it is.
func rainOf(path string) (campaign string, money, ok bool) {
	stage, money := strings.CutSuffix(path, "?money=1")
	campaign, ok = strings.CutSuffix(stage, "/rain")
	if !ok || strings.Count(campaign, "/") != 2 {
		return path, false, false
	}
	return campaign, money, true
}

// rainPage makes the page for a stage from that of the campaign.
func rainPage(v *view, money bool) {
	campaign := v.filter
	v.name, v.live = "rain", "rain-live"
	v.filter = func(now *reading, who *access.Caller) any {
		seen, ok := campaign(now, who).(*campaignView)
		if !ok {
			return now.data
		}
		return rainView{seen, money}
	}
}
