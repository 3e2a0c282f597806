package console

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// When returns a time of the campaign for the page.
func (p *trailPage) When(t time.Time) when { return when{At: t, zone: p.Trails.Zone} }

// stepClass returns the class of a step on the path of a grant, and stepLevel the level of its icon.
func stepClass(state string) string {
	switch ops.WhyState(state) {
	case ops.WhyDelivered, ops.WhyGivenUp:
		return "done"
	case ops.WhyPerson:
		return "bad open"
	case ops.WhyWaiting, ops.WhyUnknown:
	}
	return "todo"
}

func stepLevel(state string) level {
	switch ops.WhyState(state) {
	case ops.WhyDelivered:
		return levelOK
	case ops.WhyGivenUp:
		return levelCalm
	case ops.WhyPerson:
		return levelBad
	case ops.WhyWaiting, ops.WhyUnknown:
	}
	return levelWait
}

// trailPage is the form for a trail, and the trails that were found.
type trailPage struct {
	titles
	Campaign, User, Packet string
	Asked                  bool
	model.Trails
}

func (c *Console) trail(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := trailPage{Campaign: q.Get("campaign"), User: q.Get("user"), Packet: q.Get("packet")}
	answer := page{Title: model.Say("Find a user"), Caller: who, View: &p}
	packet, err := strconv.ParseInt(p.Packet, 10, 64)
	switch {
	case p.Campaign == "" && p.User == "" && p.Packet == "":
	case hongbao.CheckCampaignID(p.Campaign) != nil:
		answer.Error = model.Say("Name a campaign.")
	case !who.Sees(p.Campaign):
		answer.Error = nameOne
	case p.Packet != "" && (err != nil || packet < 1):
		answer.Error = model.Say("A packet is a number of 1 or more.")
	case (p.User == "") == (p.Packet == ""):
		answer.Error = model.Say("Name a user or a packet, not both.")
	default:
		if p.Trails, err = c.source.Trail(r.Context(), model.Question{Campaign: p.Campaign, User: p.User,
			Packet: packet}); err != nil {
			c.failed(w, r, err)
			return
		}
		p.Asked, p.titles = true, c.titlesOf(r.Context(), p.Campaign)
	}
	c.show(w, r, http.StatusOK, "trail", answer)
}
