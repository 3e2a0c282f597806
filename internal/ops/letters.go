package ops

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func checkFilter(f *model.LetterFilter) error {
	switch classes := model.LetterClasses(); {
	case f.Class != "" && !slices.Contains(classes, f.Class):
		return &InputError{Field: "class", Text: "is one of " + strings.Join(classes, ", ")}
	case !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To):
		return &InputError{Field: "from", Text: "must be before the end"}
	}
	return checkPick(f.Campaign, f.User)
}

func (l *Local) filter(f *model.LetterFilter) deadletter.Filter {
	return deadletter.Filter{Sinks: list(f.Sink), Campaign: f.Campaign, Class: f.Class, User: f.User, Reason: f.Reason,
		From: f.From, To: f.To, Sees: l.sees()}
}

// LetterList is the input of ListLetters.
type LetterList struct {
	model.LetterFilter
	After string // Next of the previous page
	Limit int
}

// Check returns an error if the input is invalid.
func (in *LetterList) Check() error {
	return cmp.Or(checkLimit(in.Limit, model.MaxLetters), checkAfter(in.After), checkFilter(&in.LetterFilter))
}

func checkAfter(after string) error {
	if _, _, _, err := model.ParseLetterID(after); after != "" && err != nil {
		return &InputError{Field: "after", Text: "is the next of the previous answer"}
	}
	return nil
}

// CheckLetter returns an error if the id of a letter is malformed.
func CheckLetter(id string) error {
	if _, _, _, err := model.ParseLetterID(id); err != nil {
		return &InputError{Field: "letter", Code: "unknown_letter", Text: "is SINK/SHARD/ENTRY, as `hongbao dead list` prints it"}
	}
	return nil
}

// ListLetters returns a page of dead letters.
func (l *Local) ListLetters(ctx context.Context, in LetterList) (deliveries.LetterPage, error) {
	f := l.filter(&in.LetterFilter)
	if err := cmp.Or(in.Check(), l.checkSinks("sink", f.Sinks...)); err != nil {
		return deliveries.LetterPage{}, err
	}
	return deliveries.Of(l.App).ListLetters(ctx, f, in.After, in.Limit)
}

// ShowLetter returns a dead letter by its id. A letter that the caller may not see looks as if it did not
// exist.
func (l *Local) ShowLetter(ctx context.Context, id string) (model.Letter, error) {
	return l.letter(ctx, access.ReadLetters, id)
}

func (l *Local) letter(ctx context.Context, a access.Action, id string) (letter model.Letter, err error) {
	if err := CheckLetter(id); err != nil {
		return letter, err
	}
	sink, shard, _, _ := model.ParseLetterID(id)
	gone := hongbao.Errorf(hongbao.ClassPermanent, "letter %s: %w; `hongbao dead list` lists the letters", id,
		deadletter.ErrNoLetter)
	if shard >= l.App.Config.Deployment.Shards || l.checkSinks("sink", sink) != nil {
		return letter, gone
	}
	letter, err = deliveries.Of(l.App).Letter(ctx, id)
	if err == nil && !l.visibleOrDenied(ctx, a, letter.Campaign()) {
		return model.Letter{}, gone
	}
	return letter, err
}

// Letters selects the dead letters to requeue or drop, by their ids or by filters.
type Letters struct {
	Letter string `json:"letter,omitempty" doc:"Id of a letter, or several ids separated by commas. Replaces the filters."`
	model.LetterFilter
	All    bool   `json:"all,omitempty" doc:"True to select all letters. Then 'letter' and the filters must be absent."`
	Expect *int64 `json:"expect,omitempty" minimum:"0" doc:"Number of letters that the filters or 'all' select: the field 'matched' of a dry run. Required with filters or 'all', except in a dry run."`
	After  string `json:"after,omitempty" doc:"To continue after an answer 202: the value of its field 'next'. Not allowed with 'letter'."`
	By     string `json:"-"` // who decides; ignored if the caller has an API key
	Why    string `json:"why" doc:"The reason for the decision. It is stored with each letter, with the id of the caller's API key."`
	DryRun bool   `json:"dry_run,omitempty" doc:"True to count the selected letters without a change."`
}

// IDs returns the ids of the letters; none if filters select them.
func (in *Letters) IDs() []string { return list(in.Letter) }

// Check returns an error unless the input selects letters in exactly one way. A selection by filters also needs
// the expected number of letters.
func (in *Letters) Check() error {
	ways, named := 0, in.Letter != ""
	for _, given := range []bool{named, in.All, in.Some()} {
		if given {
			ways++
		}
	}
	if err := checkAfter(in.After); err != nil {
		return err
	}
	switch {
	case ways != 1:
		return &InputError{Text: "name the letters: give exactly one of letter, filters and all"}
	case named && in.After != "":
		return &InputError{Field: "after", Text: "is for filters or all, not for letter"}
	case named && in.Expect != nil:
		return &InputError{Field: "expect", Text: "is for filters or all, not for letter"}
	case in.Expect != nil && *in.Expect < 0:
		return &InputError{Field: "expect", Text: "is 0 or more"}
	case !named && in.Expect == nil && !in.DryRun:
		return &InputError{Field: "expect",
			Text: "is required with filters or all: first send a dry run, then send its matched as expect"}
	}
	for _, id := range in.IDs() {
		if err := CheckLetter(id); err != nil {
			return err
		}
	}
	return cmp.Or(checkWhy(in.Why), checkFilter(&in.LetterFilter))
}

// Refused returns an error if letters remain that a person must look at.
func (in *Letters) Refused(r *model.LetterReport) error {
	switch {
	case r == nil:
		return nil
	case r.Failed > 0 && r.Decision == "dropped":
		return app.NeedsAttention("%s %s: the report has the reasons", plural.Of(r.Failed, "letter"),
			plural.Verb(r.Failed, "stays", "stay"))
	case r.Failed > 0:
		return app.NeedsAttention("the sink refused %s again: fix the errors in the report, then requeue or drop "+
			"what is left", plural.Of(r.Failed, "letter"))
	case r.Unreadable > 0 && in.Letter != "" && r.Decision != "dropped":
		return app.NeedsAttention("%s can't be delivered: drop %s", plural.Of(r.Unreadable, "named letter"),
			plural.Verb(r.Unreadable, "it", "them"))
	}
	return nil
}

// pick checks the input and the caller's permissions, and returns the selection.
func (l *Local) pick(ctx context.Context, a access.Action, in *Letters) (pick deadletter.Pick, err error) {
	pick = deadletter.Pick{IDs: in.IDs(), Filter: l.filter(&in.LetterFilter), After: in.After, Expect: in.Expect}
	if err := cmp.Or(in.Check(), l.checkSinks("sink", pick.Filter.Sinks...)); err != nil {
		return pick, err
	}
	for _, id := range pick.IDs {
		letter, err := l.letter(ctx, a, id)
		if err != nil {
			return pick, err
		}
		if !slices.Contains(pick.Filter.Sinks, letter.Sink) {
			pick.Filter.Sinks = append(pick.Filter.Sinks, letter.Sink)
		}
	}
	if in.Campaign != "" {
		err = l.checkAllowed(a, in.Campaign)
	}
	return pick, err
}

// DropLetters marks letters as decided without delivering them.
func (l *Local) DropLetters(ctx context.Context, in Letters) (*model.LetterReport, error) {
	pick, err := l.pick(ctx, access.DropLetters, &in)
	if err != nil {
		return nil, err
	}
	return deliveries.Of(l.App).DropLetters(ctx, pick, stream.Decision{By: l.by(in.By), Why: in.Why}, in.DryRun)
}

// Requeue is the input of RequeueLetters.
type Requeue struct {
	Letters
	// Rate is the maximum number of grants per second; 0 means the sink's own limit. Patience is how long deliveries to
	// a sink that is down are retried.
	Rate     float64       `json:"-"`
	Patience time.Duration `json:"-"`
}

// RequeueLetters delivers dead letters to their sinks again.
func (l *Local) RequeueLetters(ctx context.Context, in Requeue) (*model.LetterReport, error) {
	pick, err := l.pick(ctx, access.RequeueLetters, &in.Letters)
	if err != nil {
		return nil, err
	}
	return deliveries.Of(l.App).Requeue(ctx, deliveries.Requeue{Pick: pick, Decision: stream.Decision{By: l.by(in.By), Why: in.Why},
		Rate: in.Rate, Patience: in.Patience, DryRun: in.DryRun})
}

func queryOf(f *model.LetterFilter) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"sink": f.Sink, "campaign": f.Campaign, "class": f.Class, "user": f.User,
		"reason": f.Reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, t := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	return q
}

// ListLetters implements Operations.
func (r *Remote) ListLetters(ctx context.Context, in LetterList) (page deliveries.LetterPage, err error) {
	if err := in.Check(); err != nil {
		return page, err
	}
	q := queryOf(&in.LetterFilter)
	if in.After != "" {
		q.Set("after", in.After)
	}
	page.Letters = []model.Letter{}
	err = r.pages(ctx, "/v1/dead-letters", q, in.Limit, func(get func(to any) error) (int, string, error) {
		var next deliveries.LetterPage
		err := get(&next)
		page.Letters, page.Next = append(page.Letters, next.Letters...), next.Next
		return len(next.Letters), string(next.Next), err
	})
	return page, err
}

// ShowLetter implements Operations.
func (r *Remote) ShowLetter(ctx context.Context, id string) (letter model.Letter, err error) {
	if err := CheckLetter(id); err != nil {
		return letter, err
	}
	err = r.get(ctx, "/v1/dead-letters/"+id, nil, &letter)
	return letter, err
}

// RequeueLetters implements Operations.
func (r *Remote) RequeueLetters(ctx context.Context, in Requeue) (*model.LetterReport, error) {
	if in.Rate != 0 {
		return nil, &InputError{Field: "rate", Text: "works without --server only: a server uses the sink's own bound"}
	}
	return r.letters(ctx, "requeue", in.Letters)
}

// DropLetters implements Operations.
func (r *Remote) DropLetters(ctx context.Context, in Letters) (*model.LetterReport, error) {
	return r.letters(ctx, "drop", in)
}

// letters requeues or drops letters. If that takes long, the server answers with its progress. Then letters sends
// further requests until the server has finished.
func (r *Remote) letters(ctx context.Context, what string, in Letters) (all *model.LetterReport, err error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	in.Why = reason(in.By, in.Why)
	for {
		var report model.LetterReport
		more, err := r.post(ctx, "/v1/dead-letters/"+what, &in, &report)
		if err != nil {
			return all, err
		}
		if all == nil {
			all = &report
		} else {
			all.Add(&report)
			all.Next = report.Next
		}
		if !more || report.Next == "" {
			return all, nil
		}
		in.After = string(report.Next)
	}
}
