package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// letterPage is the list of dead letters.
type letterPage struct {
	Sink, Campaign, Class, User, Reason string
	Classes                             []string
	Letters                             []deadletter.Letter
	Next                                string
}

func filterOf(v url.Values) deadletter.Filter {
	f := deadletter.Filter{Campaign: v.Get("campaign"), Class: v.Get("class"), User: v.Get("user"), Reason: v.Get("reason")}
	if sink := v.Get("sink"); sink != "" {
		f.Sinks = []string{sink}
	}
	return f
}

// inScope tells whether a caller may work with what a filter picks: one whose key is for some campaigns names one.
func inScope(who *access.Caller, campaign string) bool {
	return !who.Scoped() || campaign != "" && who.Sees(campaign)
}

// What a person is told about the campaign of a form.
const (
	badCampaign = "This is no campaign's id: it has 1 to 64 of a-z, 0-9, - and _, and begins with a letter."
	nameOne     = "Your key is for some campaigns only: name one of them."
)

func (c *Console) letters(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := letterPage{Sink: q.Get("sink"), Campaign: q.Get("campaign"), Class: q.Get("class"), User: q.Get("user"),
		Reason:  q.Get("reason"),
		Classes: deadletter.Classes()}
	answer := page{Title: "Dead letters", Caller: who, View: &p}
	if !inScope(who, p.Campaign) {
		answer.Error = nameOne
		c.show(w, r, http.StatusOK, "letters", answer)
		return
	}
	list, next, err := c.source.Letters(r.Context(), filterOf(q), q.Get("after"))
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p.Letters = list
	if next != "" {
		q.Set("after", next)
		p.Next = "/letters?" + q.Encode()
	}
	c.show(w, r, http.StatusOK, "letters", answer)
}

func (c *Console) letter(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id := r.PathValue("sink") + "/" + r.PathValue("shard") + "/" + r.PathValue("id")
	l, err := c.source.Letter(r.Context(), id)
	if err == nil && !inScope(who, l.Campaign()) {
		c.hidden(r, access.ReadLetters, l.Campaign())
		err = fmt.Errorf("letter %s: %w", id, model.ErrNotFound)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "letter", page{Title: "Dead letter", Caller: who, View: l})
}

// workLetters requeues or drops letters: those whose boxes are ticked, or all that the filter picks. The latter are
// counted first, and the answer has the button that decides that many.
func (c *Console) workLetters(a access.Action, what string, do func(context.Context, *access.Caller, app.LetterForm) (*deadletter.Report,
	error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, "This form can't be read.")
			return
		}
		path := r.URL.Path
		o := app.LetterForm{Pick: deadletter.Pick{IDs: r.PostForm["id"], Filter: filterOf(r.PostForm),
			After: r.PostFormValue("after")},
			Why: strings.TrimSpace(r.PostFormValue("why"))}
		if n, err := strconv.ParseInt(r.PostFormValue("expect"), 10, 64); err == nil {
			o.Pick.Expect = &n
		}
		if text := c.refuseLetters(r, who, a, &o); text != "" {
			c.fail(w, r, http.StatusBadRequest, text)
			return
		}
		name := what + " of dead letters"
		if o.DryRun = len(o.Pick.IDs) == 0 && o.Pick.Expect == nil; o.DryRun {
			name = "Dry run: " + name
		}
		c.startJob(w, r, who, Job{What: name}, func(ctx context.Context, j *Job) (err error) {
			j.Letters, err = do(ctx, who, o)
			switch {
			case j.Letters == nil:
			case o.DryRun && err == nil && j.Letters.Matched > 0:
				o.Pick.Expect = &j.Letters.Matched
				j.Again = &Again{a, path, o}
			case !o.DryRun && j.Letters.Next != "":
				o.Pick.After = string(j.Letters.Next)
				j.Again = &Again{a, path, o}
			}
			return err
		})
	}
}

// refuseLetters says what is wrong with an order; empty for nothing.
func (c *Console) refuseLetters(r *http.Request, who *access.Caller, a access.Action, o *app.LetterForm) string {
	f := &o.Pick.Filter
	switch {
	case o.Why == "":
		return "Say why: it is recorded with the letters."
	case len(o.Pick.IDs) > 0:
		for _, id := range o.Pick.IDs {
			if l, err := c.source.Letter(r.Context(), id); who.Scoped() && (err != nil || !inScope(who, l.Campaign())) {
				c.hidden(r, a, l.Campaign())
				return nameOne
			}
		}
		o.Pick.Filter, o.Pick.After = deadletter.Filter{}, ""
	case f.Campaign != "" && hongbao.CheckCampaignID(f.Campaign) != nil:
		return badCampaign
	case !inScope(who, f.Campaign):
		c.hidden(r, a, f.Campaign)
		return nameOne
	case r.PostFormValue("all") == "":
		return "Tick the letters that you mean, or say that you mean all that the filter picks."
	}
	return ""
}

// quarantinePage is the list of grants in quarantine.
type quarantinePage struct {
	All    bool
	Grants []ledger.Quarantined
	Next   int64
}

func (c *Console) quarantine(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	p := quarantinePage{All: r.URL.Query().Get("all") != ""}
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // else from the beginning
	list, err := c.source.Quarantine(r.Context(), after, p.All)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if len(list) == model.PageLen {
		p.Next = list[len(list)-1].ID
	}
	for i := range list {
		if who.Sees(list[i].Grant.Campaign) {
			p.Grants = append(p.Grants, list[i])
		}
	}
	c.show(w, r, http.StatusOK, "quarantine", page{Title: "Quarantine", Caller: who, View: p, Done: done(r.URL)})
}

// oneQuarantined finds the grant that a path names.
func (c *Console) oneQuarantined(r *http.Request, who *access.Caller, a access.Action) (ledger.Quarantined, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return ledger.Quarantined{}, fmt.Errorf("quarantine %.20q: %w", r.PathValue("id"), model.ErrNotFound)
	}
	q, err := c.source.Quarantined(r.Context(), id)
	if err == nil && !who.Sees(q.Grant.Campaign) {
		c.hidden(r, a, q.Grant.Campaign)
		err = fmt.Errorf("quarantine %d: %w", id, model.ErrNotFound)
	}
	return q, err
}

func (c *Console) quarantined(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q, err := c.oneQuarantined(r, who, access.ReadQuarantine)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "quarantined", page{Title: fmt.Sprintf("Quarantine %d", q.ID), Caller: who, View: &q,
		Done: done(r.URL)})
}

// decide pays or voids a grant in quarantine.
func (c *Console) decide(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q, err := c.oneQuarantined(r, who, access.DecideQuarantine)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	d := ledger.Resolution{ID: q.ID}
	d.By, d.Why = who.Name(), strings.TrimSpace(r.PostFormValue("why"))
	switch r.PostFormValue("decision") {
	case "pay":
		d.Pay = true
	case "void":
	default:
		c.fail(w, r, http.StatusBadRequest, "Say whether the grant is paid or voided.")
		return
	}
	if d.Why == "" {
		c.fail(w, r, http.StatusBadRequest, "Say why: it is recorded with the decision.")
		return
	}
	if err := c.actions.Decide(r.Context(), who, d); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, fmt.Sprintf("/quarantine/%d?done=decided", q.ID), http.StatusSeeOther)
}

// trailPage is a question and its answer.
type trailPage struct {
	Campaign, User, Packet string
	Asked                  bool
	model.Trails
}

func (c *Console) trail(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := trailPage{Campaign: q.Get("campaign"), User: q.Get("user"), Packet: q.Get("packet")}
	answer := page{Title: "Trail of a grant", Caller: who, View: &p}
	packet, err := strconv.ParseInt(p.Packet, 10, 64)
	switch {
	case p.Campaign == "" && p.User == "" && p.Packet == "":
	case hongbao.CheckCampaignID(p.Campaign) != nil:
		answer.Error = "Name a campaign."
	case !who.Sees(p.Campaign):
		answer.Error = nameOne
	case p.Packet != "" && (err != nil || packet < 1):
		answer.Error = "A packet is a number from 1 on."
	case (p.User == "") == (p.Packet == ""):
		answer.Error = "Name a user or a packet, not both."
	default:
		if p.Trails, err = c.source.Trail(r.Context(), model.Question{Campaign: p.Campaign, User: p.User,
			Packet: packet}); err != nil {
			c.failed(w, r, err)
			return
		}
		p.Asked = true
	}
	c.show(w, r, http.StatusOK, "trail", answer)
}
