package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

type letterPage struct {
	Sink, Campaign, Class, User, Reason string
	Classes                             []string
	Letters                             []model.Letter
	Next                                string
}

// filterOf reads a filter from the query of a page, or from a form.
func filterOf(v url.Values) model.LetterFilter {
	return model.LetterFilter{Sink: v.Get("sink"), Campaign: v.Get("campaign"), Class: v.Get("class"), User: v.Get("user"),
		Reason: v.Get("reason")}
}

// inScope reports whether a caller may work with the letters of a campaign. A caller with a scope must name a campaign
// in the scope.
func inScope(who *access.Caller, campaign string) bool {
	return !who.Scoped() || campaign != "" && who.Sees(campaign)
}

// The messages about the campaign in a form.
var (
	badCampaign = model.Say("This is not a campaign id. An id has 1 to 64 characters of a-z, 0-9, - and _, and begins with a letter.")
	nameOne     = model.Say("Your key is for some campaigns only: name one of them.")
)

func (c *Console) letters(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := letterPage{Sink: q.Get("sink"), Campaign: q.Get("campaign"), Class: q.Get("class"), User: q.Get("user"),
		Reason:  q.Get("reason"),
		Classes: model.LetterClasses()}
	answer := page{Title: model.Say("Dead letters"), Caller: who, View: &p}
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
	c.show(w, r, http.StatusOK, "letter", page{Title: model.Say("Dead letter"), Caller: who, View: l})
}

// workLetters requeues or drops letters: the selected ones, or all that match the filter. With a filter, a first job
// only counts the letters, and its page has a button that works on the counted letters.
func (c *Console) workLetters(a access.Action, what, counts model.Sentence,
	do func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, model.Say("This form can't be read."))
			return
		}
		in := lettersOf(r.PostForm)
		if text := c.refuseLetters(r, who, a, &in); text.Text != "" {
			c.fail(w, r, http.StatusBadRequest, text)
			return
		}
		order := lettersOrder(a, r.URL.Path, in, what, func(ctx context.Context) (*model.LetterReport, error) {
			return do(ctx, c.operations(who), in)
		})
		if in.DryRun {
			order.What = counts
		}
		c.startJob(w, r, who, order)
	}
}

// lettersOrder returns the order to decide about letters. The same decision in two windows is one job.
func lettersOrder(a access.Action, path string, in ops.Letters, what model.Sentence,
	do func(ctx context.Context) (*model.LetterReport, error)) *jobs.Order {
	text, _ := json.Marshal(in) // it has no field that JSON can't write
	sum := sha256.Sum256(text)
	return &jobs.Order{Name: string(a) + " " + hex.EncodeToString(sum[:]), What: what, Campaign: in.Campaign, Stopper: a,
		Do: func(ctx context.Context, r *jobs.Report) (err error) {
			r.Letters, err = do(ctx)
			again := in
			switch {
			case r.Letters == nil:
			case in.DryRun && err == nil && r.Letters.Matched > 0:
				again.Expect = &r.Letters.Matched
				r.Again = &jobs.Again{Action: a, Path: path, Order: again}
			case !in.DryRun && r.Letters.Next != "":
				again.After = string(r.Letters.Next)
				r.Again = &jobs.Again{Action: a, Path: path, Order: again}
			}
			return errors.Join(err, in.Refused(r.Letters))
		}}
}

// lettersOf parses a form about letters. Selected letters take precedence over the filter.
func lettersOf(form url.Values) ops.Letters {
	in := ops.Letters{Letter: strings.Join(form["id"], ","), Why: strings.TrimSpace(form.Get("why"))}
	if in.Letter != "" {
		return in
	}
	in.LetterFilter = filterOf(form)
	in.All, in.After = in.LetterFilter == model.LetterFilter{}, form.Get("after")
	if n, err := strconv.ParseInt(form.Get("expect"), 10, 64); err == nil {
		in.Expect = &n
	}
	in.DryRun = in.Expect == nil
	return in
}

// refuseLetters returns a sentence about the mistake in a form. The sentence is empty if the form is valid.
func (c *Console) refuseLetters(r *http.Request, who *access.Caller, a access.Action, in *ops.Letters) (nothing model.Sentence) {
	if in.Letter == "" && r.PostFormValue("all") == "" {
		return model.Say("Select letters, or tick the box for all letters that the filter picks.")
	}
	if err := in.Check(); err != nil {
		return c.explain(err)
	}
	if in.Letter == "" {
		if !inScope(who, in.Campaign) {
			c.hidden(r, a, in.Campaign)
			return nameOne
		}
		return nothing
	}
	for id := range strings.SplitSeq(in.Letter, ",") {
		if !who.Scoped() {
			break
		}
		if l, err := c.source.Letter(r.Context(), id); err != nil || !inScope(who, l.Campaign()) {
			c.hidden(r, a, l.Campaign())
			return nameOne
		}
	}
	return nothing
}

// quarantinePage is the data of the page of grants in quarantine.
type quarantinePage struct {
	All    bool
	Grants []model.Quarantined
	Next   int64
}

func (c *Console) quarantine(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	p := quarantinePage{All: r.URL.Query().Get("all") != ""}
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // without a valid number, start at the beginning
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
	c.show(w, r, http.StatusOK, "quarantine", page{Title: model.Say("Quarantine"), Caller: who, View: p, Done: done(r.URL)})
}

// oneQuarantined reads the grant whose number is in the path.
func (c *Console) oneQuarantined(r *http.Request, who *access.Caller, a access.Action) (model.Quarantined, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return model.Quarantined{}, fmt.Errorf("quarantine %.20q: %w", r.PathValue("id"), model.ErrNotFound)
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
	c.show(w, r, http.StatusOK, "quarantined", page{Title: model.Say("Quarantine %s", strconv.FormatInt(q.ID, 10)), Caller: who, View: &q,
		Done: done(r.URL)})
}

func (c *Console) decide(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q, err := c.oneQuarantined(r, who, access.DecideQuarantine)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	in := ops.Decide{ID: q.ID, Decision: r.PostFormValue("decision"), Why: strings.TrimSpace(r.PostFormValue("why"))}
	if _, err := c.operations(who).DecideQuarantined(r.Context(), in); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, fmt.Sprintf("/quarantine/%d?done=decided", q.ID), http.StatusSeeOther)
}

// trailPage is the form for a trail, and the trails that were found.
type trailPage struct {
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
		p.Asked = true
	}
	c.show(w, r, http.StatusOK, "trail", answer)
}
