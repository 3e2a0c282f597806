package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// letterPage is the data of the page of dead letters. With a filter it has a list of them, too.
type letterPage struct {
	titles
	model.LetterFilter
	Classes   []string
	Judgement lettersJudgement
	Groups    []letterGroup
	Count     int64
	Letters   []model.Letter
	Next      string
}

// All returns the path of the page that asks before all letters of the filter are requeued.
func (p *letterPage) All() string { return lettersPath("/letters/requeue", p.LetterFilter) }

// filterOf reads a filter from the query of a page, or from a form.
func filterOf(v url.Values) model.LetterFilter {
	return model.LetterFilter{Sink: v.Get("sink"), Campaign: v.Get("campaign"), Class: v.Get("class"), User: v.Get("user"),
		Reason: v.Get("reason")}
}

// lettersPath returns the path of a page about the letters that a filter selects.
func lettersPath(page string, f model.LetterFilter) string {
	q := url.Values{}
	for name, value := range map[string]string{"sink": f.Sink, "campaign": f.Campaign, "class": f.Class, "user": f.User, "reason": f.Reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if page != "/letters" {
		q.Set("all", "1")
	}
	if len(q) == 0 {
		return page
	}
	return page + "?" + q.Encode()
}

// inScope reports whether a caller may work with the letters of a campaign. A caller with a scope must name a campaign
// in the scope.
func inScope(who *access.Caller, campaign string) bool {
	return !who.Scoped() || campaign != "" && who.Sees(campaign)
}

// The messages about the campaign in a form, and about a form that selects nothing.
var (
	badCampaign = model.Say("This is not a campaign id. An id has 1 to 64 characters of a-z, 0-9, - and _, and begins with a letter.")
	nameOne     = model.Say("Your key is for some campaigns only: name one of them.")
	pickOne     = model.Say("Select letters first.")
	badForm     = model.Say("This form can't be read.")
)

func (c *Console) letters(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := letterPage{LetterFilter: filterOf(q), Classes: model.LetterClasses()}
	answer := page{Title: model.Say("Dead letters"), Meta: model.Say("Deliveries that were given up. Each letter stays until a person decides."),
		Caller: who, View: &p}
	if !inScope(who, p.Campaign) {
		answer.Error = nameOne
		c.show(w, r, http.StatusOK, "letters", answer)
		return
	}
	var err error
	ids := []string{p.Campaign}
	if p.Some() {
		if p.Letters, p.Next, err = c.source.Letters(r.Context(), p.LetterFilter, q.Get("after")); err == nil && p.Next != "" {
			q.Set("after", p.Next)
			p.Next = "/letters?" + q.Encode()
		}
		for i := range p.Letters {
			ids = append(ids, p.Letters[i].Campaign())
		}
	}
	if err == nil && q.Get("after") == "" {
		var found model.LetterGroups
		found, err = c.source.LetterGroups(r.Context(), p.LetterFilter)
		p.Count, p.Judgement = found.Letters, judgeLetters(&found)
		p.Groups = groupViews(&found, p.LetterFilter, c.glanceFor(who).sinks, who)
		for i := range p.Groups {
			ids = append(ids, p.Groups[i].Campaigns...)
		}
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p.titles = c.titlesOf(r.Context(), ids...)
	c.show(w, r, http.StatusOK, "letters", answer)
}

// oneLetter is the data of the page of a dead letter.
type oneLetter struct {
	titles
	model.Letter
	To model.Sentence
	// Requeue and Drop say what each decision does.
	Requeue, Drop []model.Sentence
}

// Pays reports whether the letter is a payment.
func (l *oneLetter) Pays() bool {
	return l.Sink == configs.SinkBalance && l.Grant != nil && l.Grant.Currency != ""
}

func (c *Console) letter(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	l, err := c.readLetter(r.Context(), r.PathValue("sink")+"/"+r.PathValue("shard")+"/"+r.PathValue("id"))
	if err == nil && !inScope(who, l.Campaign()) {
		c.hidden(r, access.ReadLetters, l.Campaign())
		err = fmt.Errorf("letter %s: %w", l.ID, model.ErrNotFound)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	groups := model.GroupLetters([]model.Letter{l})
	v := oneLetter{titles: c.titlesOf(r.Context(), l.Campaign()), Letter: l, To: deliveryTo(l.Sink), Requeue: deliveries.WhatRequeueDoes(groups),
		Drop: deliveries.WhatDropDoes(groups)}
	c.show(w, r, http.StatusOK, "letter", page{Title: model.Say("Dead letter"), Own: true, Caller: who, View: &v})
}

// readLetter reads a letter. The letter of an error has its id.
func (c *Console) readLetter(ctx context.Context, id string) (model.Letter, error) {
	l, err := c.source.Letter(ctx, id)
	if err != nil {
		l.ID = id
	}
	return l, err
}

// lettersForm is the data of the page that asks for a reason before letters are requeued or dropped. It says how many
// they are, and what the decision does.
type lettersForm struct {
	titles
	model.LetterFilter
	IDs  []string
	Drop bool
	Back string
	model.LetterGroups
	Sums model.Sums
	What []model.Sentence
}

// confirmLetters shows the page before letters are requeued or dropped: the selected ones, or all that the filter selects.
func (c *Console) confirmLetters(a access.Action) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		q := r.URL.Query()
		v := lettersForm{LetterFilter: filterOf(q), IDs: q["id"], Drop: a == access.DropLetters}
		v.Back = lettersPath("/letters", v.LetterFilter)
		if text := c.refusePick(r, who, a, q["id"], v.Campaign, q.Get("all") != ""); text.Text != "" {
			c.fail(w, r, http.StatusBadRequest, text)
			return
		}
		var err error
		if len(v.IDs) > 0 {
			v.LetterGroups, err = c.groupsOf(r.Context(), v.IDs)
		} else {
			v.LetterGroups, err = c.source.LetterGroups(r.Context(), v.LetterFilter)
		}
		if err != nil {
			c.failed(w, r, err)
			return
		}
		var ids []string
		for i := range v.Groups {
			ids = append(ids, v.Groups[i].Campaigns...)
			v.Sums.AddAll(v.Groups[i].Sums)
		}
		v.titles = c.titlesOf(r.Context(), ids...)
		title, does := model.Say("Requeue %d dead letters", v.LetterGroups.Letters), deliveries.WhatRequeueDoes
		if v.Drop {
			title, does = model.Say("Drop %d dead letters", v.LetterGroups.Letters), deliveries.WhatDropDoes
		}
		v.What = does(v.Groups)
		c.show(w, r, http.StatusOK, "letters-form", page{Title: title, Caller: who, View: &v})
	}
}

// groupsOf reads letters by their ids, and groups them.
func (c *Console) groupsOf(ctx context.Context, ids []string) (found model.LetterGroups, err error) {
	list := make([]model.Letter, len(ids))
	for i, id := range ids {
		if list[i], err = c.readLetter(ctx, id); err != nil {
			return found, err
		}
	}
	return model.LetterGroups{Groups: model.GroupLetters(list), Letters: int64(len(list))}, nil
}

// refusePick returns a sentence about a selection of letters that the caller may not work on. It is empty if the caller may.
func (c *Console) refusePick(r *http.Request, who *access.Caller, a access.Action, ids []string, campaign string,
	all bool) (nothing model.Sentence) {
	switch {
	case len(ids) == 0 && !all:
		return pickOne
	case len(ids) == 0 && !inScope(who, campaign):
		c.hidden(r, a, campaign)
		return nameOne
	}
	for _, id := range ids {
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

// workLetters requeues or drops letters: the selected ones, or all that match the filter. If the form does not say how
// many the filter selects, a first job only counts them, and its page has a button that works on the counted letters.
func (c *Console) workLetters(a access.Action, what, counts model.Sentence,
	do func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, badForm)
			return
		}
		in := lettersOf(r.PostForm)
		text := pickOne
		if in.Letter != "" || r.PostForm.Get("all") != "" {
			if err := in.Check(); err != nil {
				text = c.explain(err)
			} else {
				text = c.refusePick(r, who, a, r.PostForm["id"], in.Campaign, true)
			}
		}
		if text.Text != "" {
			c.fail(w, r, http.StatusBadRequest, text)
			return
		}
		order := jobs.Letters(a, r.URL.Path, in, what, func(ctx context.Context) (*model.LetterReport, error) {
			return do(ctx, c.operations(who), in)
		})
		if in.DryRun {
			order.What = counts
		}
		c.startJob(w, r, who, order)
	}
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
