package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// endRoutes adds the page with the next step of a campaign's end, and the forms of that page.
func (c *Console) endRoutes(mux *http.ServeMux) {
	mux.Handle("GET /campaigns/{id}/end", c.allow(access.ReadCampaigns, c.endPage))
	for path, step := range map[string]endStep{
		"cancel": {access.CancelCampaign, "cancelled", func(r *http.Request, o Operations, id string) error {
			if err := typed(r, id); err != nil {
				return err
			}
			_, err := o.CancelCampaign(r.Context(), id)
			return err
		}},
		"close": {access.CloseCampaign, "closed", func(r *http.Request, o Operations, id string) error {
			if err := typed(r, id); err != nil {
				return err
			}
			_, err := o.CloseCampaign(r.Context(), ops.CampaignClose{Campaign: id, Early: r.PostFormValue("early") != ""})
			return err
		}},
		"refund": {access.Refund, "refunded", func(r *http.Request, o Operations, id string) error {
			amount, err := money.Parse(strings.TrimSpace(r.PostFormValue("amount")), r.PostFormValue("currency"))
			if err != nil {
				return &ops.InputError{Field: "amount", Text: "is the amount of the refund, as the page shows it: " + err.Error()}
			}
			_, err = o.RefundCampaign(r.Context(), ops.CampaignRefund{Campaign: id, Amount: amount})
			return err
		}},
		"reveal": {access.RevealCampaign, "revealed", func(r *http.Request, o Operations, id string) error {
			if err := typed(r, id); err != nil {
				return err
			}
			_, err := o.RevealCampaign(r.Context(), id)
			return err
		}},
	} {
		mux.Handle("POST /campaigns/{id}/"+path, c.allow(step.action, c.end(&step)))
	}
}

// typed returns an error unless a person has typed the campaign's id.
func typed(r *http.Request, id string) error {
	if strings.TrimSpace(r.PostFormValue("confirm")) != id {
		return &ops.InputError{Field: "confirm", Text: "is the campaign's id: type " + id}
	}
	return nil
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

// At returns a time of the campaign for the page.
func (v *endView) At(t time.Time) when { return when{At: t, zone: v.TimeZone} }

// Typed returns the amount of the refund as a person types it.
func (v *endView) Typed() string { return money.Number(v.Ending.Amount, v.Ending.Currency) }

// stage is one of the three steps of an end.
type stage struct {
	Name, What    model.Sentence
	Done, Current bool
}

// Stages returns the three steps of the end, with those that are done. It returns none if the next one is not known, and
// for a campaign that is cancelled instead.
func (v *endView) Stages() []stage {
	all := []stage{{Name: model.Say("1. Close"), What: model.Say("Nobody wins any more")},
		{Name: model.Say("2. Refund"), What: model.Say("The rest goes to the sponsor")},
		{Name: model.Say("3. Reveal"), What: model.Say("Everyone can check the draw")}}
	at := slices.Index([]string{"close", "refund", "reveal"}, v.Step)
	switch {
	case at >= 0:
		all[at].Current = true
	case v.Revealed && !v.LedgerUnread:
		at = len(all)
	default:
		return nil
	}
	for i := range at {
		all[i].Done = true
	}
	return all
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
	c.show(w, r, http.StatusOK, "end", page{Title: model.Say("End of campaign %s", id), Own: true, Caller: who, View: &v, Done: done(r.URL)})
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
