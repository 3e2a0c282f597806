package control

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// lettersBody picks dead letters to decide about.
type lettersBody struct {
	Letter   string    `json:"letter,omitempty" doc:"One letter by its id; or give filters."`
	Sink     string    `json:"sink,omitempty" doc:"Letters of this sink."`
	Campaign string    `json:"campaign,omitempty" doc:"Letters of this campaign."`
	Class    string    `json:"class,omitempty" enum:"unknown,transient,permanent,conflict,broken" doc:"Letters of this class."`
	User     string    `json:"user,omitempty" doc:"Letters of this user."`
	Reason   string    `json:"reason,omitempty" doc:"Letters whose reason contains this text."`
	From     time.Time `json:"from,omitzero" doc:"Letters that died at or after this time."`
	To       time.Time `json:"to,omitzero" doc:"Letters that died before this time."`
	All      bool      `json:"all,omitempty" doc:"Needed for a decision about all letters: without letter and filters."`
	Expect   int64     `json:"expect,omitempty" minimum:"0" doc:"Number of letters that filters or all pick: the matched of a dry run. Required with them, except in a dry run."`
	After    string    `json:"after,omitempty" doc:"The next of an answer 202: goes on there. Not with letter."`
	Why      string    `json:"why" doc:"Kept with each letter, as is the caller's key."`
	DryRun   bool      `json:"dry_run,omitempty" doc:"Count only."`
}

// lettersAnswer is what came of a decision. It is deadletter.Report, and whether there may be more.
type lettersAnswer struct {
	*deadletter.Report
	// More: the time was over before all letters were decided.
	More bool `json:"more" doc:"True with 202: send the same with next as after to go on."`
}

func letterOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/dead-letters", id: "list-dead-letters", summary: "List dead letters",
			description: "Oldest first within a sink and shard; next is the after of the next page.",
			action:      access.ReadLetters, answer: app.LetterPage{}, codes: []string{"unknown_sink"},
			params: []*huma.Param{
				textParam("sink", "Only letters of this sink."), campaignParam("Only letters of this campaign."),
				param("class", "query", "Only letters of this class.", &huma.Schema{Type: huma.TypeString, Enum: classes()}),
				userParam("Only letters of this user."), textParam("reason", "Only letters whose reason contains this text."),
				textParam("after", "The next of the page before."), limitParam(),
			},
			do: listLetters,
		},
		{
			method: http.MethodGet, path: "/v1/dead-letters/{sink}/{shard}/{entry}", id: "show-dead-letter",
			summary: "One dead letter", description: "The path is the letter's id. It has the whole entry.",
			action: access.ReadLetters, answer: deadletter.Letter{}, codes: []string{"unknown_letter"},
			params: []*huma.Param{
				sinkParam(),
				param("shard", "path", "The shard's number.", &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9]{1,4}$"}),
				param("entry", "path", "The letter's place in the stream of letters.",
					&huma.Schema{Type: huma.TypeString, Pattern: "^[0-9]{1,19}-[0-9]{1,19}$"}),
			},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				return c.letter(ctx, c.r.PathValue("sink")+"/"+c.r.PathValue("shard")+"/"+c.r.PathValue("entry"))
			}),
		},
		letterChange("requeue", "Deliver dead letters after all",
			"Delivers the letters to their sinks. A letter that its sink refuses again stays, and failures names it.",
			access.RequeueLetters,
			func(ctx context.Context, c *call, pick deadletter.Pick, who stream.Decision, dryRun bool) (*deadletter.Report,
				error) {
				return c.app.Requeue(ctx, app.Requeue{Pick: pick, Decision: who, DryRun: dryRun})
			}),
		letterChange("drop", "Decide that nobody is to deliver dead letters",
			"They leave the list permanently: the decided letters have them.", access.DropLetters,
			func(ctx context.Context, c *call, pick deadletter.Pick, who stream.Decision, dryRun bool) (*deadletter.Report,
				error) {
				return c.app.DropLetters(ctx, pick, who, dryRun)
			}),
	}
}

func classes() (all []any) {
	for _, c := range deadletter.Classes() {
		all = append(all, c)
	}
	return all
}

func listLetters(ctx context.Context, c *call) (any, error) {
	q := c.fields
	f := deadletter.Filter{Campaign: q.campaign("campaign"), Class: q.one("class", deadletter.Classes()...),
		User: q.user(), Reason: q.text("reason"), Sees: c.sees()}
	sink, after, limit := q.text("sink"), q.text("after"), q.limit()
	if after != "" {
		if _, _, _, err := deadletter.ParseID(after); err != nil {
			q.fail("after is the next of the page before")
		}
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := c.pickSink(&f, sink); err != nil {
		return nil, err
	}
	return c.app.ListLetters(ctx, f, after, limit)
}

// pickSink picks the letters of one sink, or of all if it is empty.
func (c *call) pickSink(f *deadletter.Filter, sink string) error {
	if sink == "" {
		return nil
	}
	f.Sinks = []string{sink}
	return c.checkSink(sink)
}

// checkSink refuses a sink that the deployment does not have.
func (c *call) checkSink(sink string) error {
	if all := c.app.Config.Deployment.Sinks; !slices.Contains(all, sink) {
		return web.Refuse("unknown_sink", "the deployment has the sinks "+strings.Join(all, ", "))
	}
	return nil
}

// letter gives a letter that the caller may see. Of one that he may not see he is told what he is told of none.
func (c *call) letter(ctx context.Context, id string) (deadletter.Letter, error) {
	gone := web.Refuse("unknown_letter", "it was decided, or never was")
	sink, shard, _, err := deadletter.ParseID(id)
	if err != nil || shard >= c.app.Config.Deployment.Shards ||
		!slices.Contains(c.app.Config.Deployment.Sinks, sink) {
		return deadletter.Letter{}, gone
	}
	l, err := c.app.Letter(ctx, id)
	if err == nil && !c.who.Sees(l.Campaign()) {
		c.hidden(l.Campaign())
		err = gone
	}
	return l, err
}

// letterChange is requeue or drop.
func letterChange(name, summary, description string, action access.Action,
	do func(ctx context.Context, c *call, pick deadletter.Pick, who stream.Decision, dryRun bool) (*deadletter.Report,
		error)) operation {
	return operation{
		method: http.MethodPost, path: "/v1/dead-letters/" + name, id: name + "-dead-letters", summary: summary,
		description: description + " Give letter, filters or all. Send a dry run first, then the decision with its matched as expect.",
		action:      action, body: lettersBody{}, answer: lettersAnswer{}, accepted: lettersAnswer{},
		codes: []string{"unknown_letter", "unknown_sink", "unknown_campaign"},
		do: func(ctx context.Context, c *call) (any, error) {
			pick, err := c.pickLetters(ctx, action)
			if err != nil {
				return nil, err
			}
			who := stream.Decision{By: c.actor.Who, Why: c.fields.why()}
			dryRun := c.fields.flag("dry_run")
			if err := c.fields.done(); err != nil {
				return nil, err
			}
			working, cancel := context.WithTimeout(ctx, c.cfg.Patience)
			defer cancel()
			report, err := do(working, c, pick, who, dryRun)
			var found app.FoundError
			switch {
			case report != nil && errors.As(err, &found): // the report says it
				return lettersAnswer{Report: report}, nil
			case report != nil && err != nil && working.Err() != nil && ctx.Err() == nil:
				return later{lettersAnswer{report, true}}, nil
			}
			return lettersAnswer{Report: report}, err
		},
	}
}

// pickLetters reads which letters are meant.
func (c *call) pickLetters(ctx context.Context, action access.Action) (pick deadletter.Pick, err error) {
	f, w := c.fields, &pick.Filter
	id, sink := f.text("letter"), f.text("sink")
	w.Campaign, w.User, w.Reason, w.Sees = f.campaign("campaign"), f.user(), f.text("reason"), c.sees()
	w.Class, w.From, w.To = f.one("class", deadletter.Classes()...), f.time("from"), f.time("to")
	ways := 0
	for _, given := range []bool{id != "", f.flag("all"), w.Some() || sink != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		f.fail("give letter, or filters, or all: one of the three")
	}
	if pick.After = f.text("after"); pick.After != "" {
		if _, _, _, err := deadletter.ParseID(pick.After); err != nil || id != "" {
			f.fail("after is the next of the answer before, and goes with filters or all")
		}
	}
	c.expected(&pick, id != "")
	switch {
	case f.err != nil:
		return pick, f.err
	case id != "":
		l, err := c.letter(ctx, id)
		pick.IDs, w.Sinks = []string{id}, []string{l.Sink}
		return pick, err
	case w.Campaign != "":
		err = c.who.Check(action, w.Campaign)
	}
	return pick, errors.Join(err, c.pickSink(w, sink))
}

// expected reads how many letters the caller expects filters to pick.
func (c *call) expected(pick *deadletter.Pick, named bool) {
	f := c.fields
	dryRun := f.flag("dry_run")
	switch given := f.has("expect"); {
	case given && named:
		f.fail("expect goes with filters or all, not with letter")
	case given:
		n := f.number("expect", 0, math.MaxInt32)
		pick.Expect = &n
	case !named && !dryRun:
		f.fail("expect is required with filters or all: send a dry run, and give its matched as expect")
	}
}
