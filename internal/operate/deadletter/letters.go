package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Letters reads and resolves the dead letters of a deployment. It is safe for concurrent use.
type Letters struct{ store *store.Store }

// New returns the dead letters of a deployment.
func New(st *store.Store) *Letters { return &Letters{st} }

// Filter selects dead letters. A zero field matches every letter.
type Filter struct {
	Sinks    []string
	Campaign string
	Class    string
	User     string
	// Reason is a substring of the letter's reason.
	Reason string
	// Sees, if not nil, reports whether letters of a campaign are selected. It gets an empty campaign for a letter
	// whose entry had been deleted.
	Sees func(campaign string) bool
	// From and To bound the time when the letter was written: From <= time < To.
	From, To time.Time
}

func (f *Filter) check() error {
	var errs []error
	for _, s := range f.Sinks {
		if err := hongbao.CheckCampaignID(s); err != nil {
			errs = append(errs, fmt.Errorf("sink %.80q: %w", s, err))
		}
	}
	if f.Class != "" && !slices.Contains(model.LetterClasses(), f.Class) {
		errs = append(errs, fmt.Errorf("class %.40q does not exist: want one of %s", f.Class, strings.Join(model.LetterClasses(), ", ")))
	}
	return errors.Join(append(errs, delivery.CheckPick(f.Campaign, f.User, f.From, f.To))...)
}

// Some reports whether a field of the filter is set. It ignores Sees.
func (f *Filter) Some() bool {
	return len(f.Sinks) > 0 || f.Campaign != "" || f.Class != "" || f.User != "" || f.Reason != "" ||
		!f.From.IsZero() || !f.To.IsZero()
}

func (f *Filter) matches(l *model.Letter) bool {
	return (f.Campaign == "" || l.Campaign() == f.Campaign) && (f.Class == "" || l.Class == f.Class) &&
		(f.User == "" || l.Grant != nil && l.Grant.User == f.User) &&
		strings.Contains(l.Reason, f.Reason) && (f.Sees == nil || f.Sees(l.Campaign())) &&
		(f.From.IsZero() || !l.Last.Before(f.From)) && (f.To.IsZero() || l.Last.Before(f.To))
}

// eachRaw calls fn for pages of a stream of letters that follow the ID after; an empty ID starts at the first letter.
func eachRaw(after string, read func(first string, n int) ([]store.RawEntry, error),
	fn func([]store.RawEntry) error) error {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	for page, err := range store.Pages(from, read) {
		if err == nil {
			err = fn(page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Each calls fn for pages of a sink's dead letters on a shard, oldest first, until fn fails. It starts after the
// stream ID after, or at the first letter if after is empty.
func (l *Letters) Each(ctx context.Context, sink string, shard int, after string, fn func([]model.Letter) error) error {
	return l.eachIn(ctx, Place{sink, shard}, span{after, "+"}, fn)
}

// span is a range of a stream: after excluded, last included.
type span struct{ after, last string }

func (l *Letters) eachIn(ctx context.Context, p Place, s span, fn func([]model.Letter) error) error {
	read := func(first string, n int) ([]store.RawEntry, error) {
		return l.store.Shard(p.Shard).Group(p.Sink).Letters(ctx, first, s.last, n)
	}
	return eachRaw(s.after, read, func(raw []store.RawEntry) error {
		page := make([]model.Letter, len(raw))
		for i := range raw {
			page[i] = parse(p.Sink, p.Shard, raw[i].ID, raw[i].Values)
		}
		return fn(page)
	})
}

// EachResolved calls fn for each resolved letter of a sink on a shard, in the order of the decisions.
func (l *Letters) EachResolved(ctx context.Context, sink string, shard int, fn func(*Resolved)) error {
	read := func(first string, n int) ([]store.RawEntry, error) {
		return l.store.Shard(shard).Group(sink).ResolvedLetters(ctx, first, "+", n)
	}
	return eachRaw("", read, func(raw []store.RawEntry) error {
		for i := range raw {
			r := parseResolved(sink, shard, raw[i].Values)
			fn(&r)
		}
		return nil
	})
}

// Aside has the grants of dead letters about which a person decides, undecided and dropped ones, by seq.
type Aside map[int64]hongbao.Grant

// Has reports whether a person decides about the grant. Another grant with the same seq is not meant. If a letter does
// not say which packet it has, all grants with its seq are meant.
func (a Aside) Has(g *hongbao.Grant) bool {
	l, ok := a[g.Seq]
	return ok && (l.Packet == 0 || l.Packet == g.Packet && (l.Campaign == "" || l.Campaign == g.Campaign))
}

func (a Aside) add(l *model.Letter) {
	a[l.Seq], _ = l.Facts() // the zero grant if the letter is a whole entry
}

// Aside returns the grants of a sink's dead letters on a shard, undecided and dropped ones.
func (l *Letters) Aside(ctx context.Context, sink string, shard int) (Aside, error) {
	aside := Aside{}
	err := l.Each(ctx, sink, shard, "", func(page []model.Letter) error {
		for i := range page {
			aside.add(&page[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return aside, l.EachResolved(ctx, sink, shard, func(r *Resolved) {
		if r.Decision == model.LetterDropped {
			aside.add(&r.Letter)
		}
	})
}

var errEnough = errors.New("enough")

// List returns up to limit letters that the filter selects, ordered by sink, shard and time. For the first page
// pass an empty after; for each further page pass the value next that the previous call returned. next is empty on the
// last page.
func (l *Letters) List(ctx context.Context, f Filter, after string, limit int) (page []model.Letter, next string,
	err error) {
	if limit < 1 || limit > model.MaxLetters {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent, "list dead letters: limit %d: want 1 to %d", limit, model.MaxLetters)
	}
	err = l.each(ctx, &Pick{Filter: f, After: after}, func(_ *store.Shard, letters []model.Letter, _ string) error {
		for i := range letters {
			if len(page) == limit {
				next = page[limit-1].ID
				return errEnough
			}
			page = append(page, letters[i])
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	return page, next, nil
}

// at returns the shard in its present epoch. If the shard opens again, its scripts change nothing.
func (l *Letters) at(ctx context.Context, shard int) (*store.Shard, error) {
	k := l.store.Shard(shard)
	head, err := k.Head(ctx)
	return k.At(head.Epoch), err
}

// each calls fn for pages of letters that the pick's filter selects. All letters of a page have the same sink and
// shard.
func (l *Letters) each(ctx context.Context, pick *Pick, fn workPage) error {
	f := &pick.Filter
	if err := f.check(); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	}
	places, after, err := l.places(f.Sinks, pick.After)
	for i := 0; i < len(places) && err == nil; i++ {
		p, s := places[i], span{last: "+"}
		if i == 0 {
			s.after = after
		}
		if pick.counted != nil {
			s.last = cmp.Or(pick.counted[p], "0-0") // 0-0 if no letter was counted here
		}
		var at *store.Shard
		if at, err = l.at(ctx, p.Shard); err != nil {
			break
		}
		err = l.eachIn(ctx, p, s, func(page []model.Letter) error {
			if len(page) == 0 {
				return nil
			}
			last := page[len(page)-1].ID
			return fn(at, slices.DeleteFunc(page, func(x model.Letter) bool { return !f.matches(&x) }), last)
		})
	}
	return err
}

// workPage processes a page of letters of one sink and of the shard k. last is the ID of the last letter that was
// compared with the filter, selected or not.
type workPage func(k *store.Shard, letters []model.Letter, last string) error

// Place is the stream with a sink's dead letters on a shard.
type Place struct {
	Sink  string
	Shard int
}

// places lists the streams of the sinks. after, if not empty, is the ID of a letter: then the list starts with that
// letter's stream, and id is the letter's ID there.
func (l *Letters) places(sinks []string, after string) (all []Place, id string, err error) {
	for _, sink := range sinks {
		for shard := range l.store.Len() {
			all = append(all, Place{sink, shard})
		}
	}
	if after == "" {
		return all, "", nil
	}
	sink, shard, id, err := model.ParseLetterID(after)
	if err != nil {
		return nil, "", err
	}
	at := slices.Index(all, Place{sink, shard})
	if at < 0 {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent,
			"after letter %s: its sink and shard are not among those listed (%s)", after, strings.Join(sinks, ", "))
	}
	return all[at:], id, nil
}

// CheckAfter returns an error if a list can't continue after this letter, because the filter does not include its sink
// or shard.
func (l *Letters) CheckAfter(f *Filter, after string) error {
	_, _, err := l.places(f.Sinks, after)
	return err
}

// ErrNoLetter means that no such dead letter exists: a person has decided about it, or it never existed.
var ErrNoLetter = errors.New("no_such_dead_letter")

// placeOf parses a letter's ID and checks that the shard exists.
func (l *Letters) placeOf(id string) (sink string, shard int, stream string, err error) {
	sink, shard, stream, err = model.ParseLetterID(id)
	if err == nil && shard >= l.store.Len() {
		err = hongbao.Errorf(hongbao.ClassPermanent, "letter %s: the deployment has shards 0 to %d", id, l.store.Len()-1)
	}
	return sink, shard, stream, err
}

// Get returns a letter by its ID.
func (l *Letters) Get(ctx context.Context, id string) (model.Letter, error) {
	sink, shard, stream, err := l.placeOf(id)
	if err != nil {
		return model.Letter{}, err
	}
	raw, err := l.store.Shard(shard).Group(sink).Letters(ctx, stream, stream, 1)
	if err != nil {
		return model.Letter{}, err
	}
	if len(raw) == 0 {
		return model.Letter{}, hongbao.Errorf(hongbao.ClassPermanent,
			"letter %s: %w; `hongbao dead list` shows the letters that exist", id, ErrNoLetter)
	}
	return parse(sink, shard, raw[0].ID, raw[0].Values), nil
}
