package console

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// endRoutes adds the page with the next step of a campaign's end, and the forms of that page.
func (c *Console) endRoutes(mux *http.ServeMux) {
	mux.Handle("GET /campaigns/{id}/end", c.allow(access.ReadCampaigns, c.endPage))
	for path, step := range map[string]endStep{
		"cancel": {access.CancelCampaign, "cancelled", func(r *http.Request, o Operations, id string) error {
			_, err := o.CancelCampaign(r.Context(), id)
			return err
		}},
		"close": {access.CloseCampaign, "closed", func(r *http.Request, o Operations, id string) error {
			_, err := o.CloseCampaign(r.Context(), ops.CampaignClose{Campaign: id, Early: r.PostFormValue("early") != ""})
			return err
		}},
		"refund": {access.Refund, "refunded", func(r *http.Request, o Operations, id string) error {
			amount, err := strconv.ParseInt(r.PostFormValue("amount"), 10, 64)
			if err != nil {
				return &ops.InputError{Field: "amount", Text: "is an integer in minor units"}
			}
			_, err = o.RefundCampaign(r.Context(), ops.CampaignRefund{Campaign: id, Amount: hongbao.Amount(amount)})
			return err
		}},
		"reveal": {access.RevealCampaign, "revealed", func(r *http.Request, o Operations, id string) error {
			_, err := o.RevealCampaign(r.Context(), id)
			return err
		}},
	} {
		mux.Handle("POST /campaigns/{id}/"+path, c.allow(step.action, c.end(&step)))
	}
}

// endStep is a step of a campaign's end. done is the key of the message after it.
type endStep struct {
	action access.Action
	done   string
	do     func(r *http.Request, o Operations, id string) error
}

func (c *Console) end(s *endStep) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		id, ok := c.campaignOf(w, r, who, s.action)
		if !ok {
			return
		}
		if err := s.do(r, c.operations(who), id); err != nil {
			c.failed(w, r, err)
			return
		}
		http.Redirect(w, r, "/campaigns/"+id+"/end?done="+s.done, http.StatusSeeOther) //nolint:gosec // id was checked
	}
}

// endView is the next step of a campaign's end: cancel, close, refund or reveal; empty if there is none, or if it can't
// be taken here.
type endView struct {
	*model.Live
	Step string
	// Early says that a close ends the window early. Undecided counts the withheld packets before a close.
	Early     bool
	Undecided int64
	// Ending has the numbers of the refund. It is nil for other steps. Missing is how many grants the ledger lacks, or has
	// too many if it is below 0.
	Ending  *campaigns.Ending
	Missing int64
}

// endPage shows what the next step of a campaign's end does, and the button for it.
func (c *Console) endPage(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id, ok := c.campaignOf(w, r, who, access.ReadCampaigns)
	if !ok {
		return
	}
	live, err := c.source.Campaign(r.Context(), id)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	v := endView{Live: live, Step: endStepOf(live), Early: time.Now().Before(live.To)}
	switch v.Step {
	case "close":
		v.Undecided, err = c.source.Undecided(r.Context(), id)
	case "refund":
		v.Ending, err = c.operations(who).CampaignEnding(r.Context(), id)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if e := v.Ending; e != nil && e.Refunded != nil { // Redis does not know it yet
		v.Step = afterRefund(live)
	} else if e != nil && e.Missing != nil {
		v.Missing = *e.Missing
	}
	c.show(w, r, http.StatusOK, "end", page{Title: model.Say("End of campaign %s", id), Caller: who, View: &v, Done: done(r.URL)})
}

func afterRefund(c *model.Live) string {
	if c.Revealed {
		return ""
	}
	return "reveal"
}

func endStepOf(c *model.Live) string {
	switch {
	case c.LedgerUnread:
		return ""
	case c.Status == "created" && !c.LoadBegun:
		return "cancel"
	case c.Status == "closed":
		return "refund"
	case c.Status == "refunded":
		return afterRefund(c)
	case c.Status == "created", c.Status == "loading", c.Status == "frozen", c.Status == model.Unread:
		return ""
	}
	return "close"
}
