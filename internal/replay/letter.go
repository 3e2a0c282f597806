package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Letter is a dead letter: a grant that its sink could not take, or a whole entry that can't be read.
type Letter struct {
	// ID names it in the deployment: <sink>/<shard>/<id in the stream>.
	ID    string `json:"id"`
	Sink  string `json:"sink"`
	Shard int    `json:"shard"`
	// Entry is the stream entry that brought it. It may be trimmed; Fields are what it held, names and values in turn.
	Entry  string   `json:"entry"`
	Fields []string `json:"fields"`
	Seq    int64    `json:"seq,omitempty"` // 0 for a whole entry
	// Grant is nil for a whole entry, and for a grant whose entry was gone when the letter was written.
	Grant    *hongbao.Grant `json:"grant,omitempty"`
	Class    string         `json:"class"`
	Reason   string         `json:"reason"`
	Attempts int64          `json:"attempts"`
	// First is when its entry was written, Last when it became a dead letter.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`

	stream string // id in the stream
}

// parseLetter reads a letter. What is not as it should be is left empty: a letter can always be shown and dropped.
func parseLetter(sink string, shard int, raw *shards.RawEntry) Letter {
	l := Letter{ID: sink + "/" + strconv.Itoa(shard) + "/" + raw.ID, Sink: sink, Shard: shard, Fields: []string{},
		stream: raw.ID}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	for i := 0; i+1 < len(raw.Values); i += 2 {
		name, value := raw.Values[i], raw.Values[i+1]
		field, ofEntry := strings.CutPrefix(name, "entry.")
		switch {
		case ofEntry:
			l.Fields = append(l.Fields, field, value)
		case name == "entry_json":
			l.Fields = append(l.Fields, name, value)
		case name == "entry":
			l.Entry = value
		case name == "seq":
			l.Seq = number(value)
		case name == "class":
			l.Class = value
		case name == "reason":
			l.Reason = value
		case name == "attempts":
			l.Attempts = number(value)
		case name == "first":
			l.First = time.UnixMilli(number(value)).UTC()
		case name == "last":
			l.Last = time.UnixMilli(number(value)).UTC()
		}
	}
	l.Grant = l.grant()
	return l
}

// grant finds the letter's grant in the fields of its entry.
func (l *Letter) grant() *hongbao.Grant {
	if l.Seq == 0 {
		return nil
	}
	e, err := hongbao.ParseEntry(l.Shard, l.Entry, l.Fields)
	if err != nil {
		return nil
	}
	for i := range e.Grants {
		if e.Grants[i].Seq == l.Seq {
			return &e.Grants[i]
		}
	}
	return nil
}

// campaign is what the letter's entry says, readable or not.
func (l *Letter) campaign() string {
	for i := 0; i+1 < len(l.Fields); i += 2 {
		if l.Fields[i] == "c" {
			return l.Fields[i+1]
		}
	}
	return ""
}

// LetterFilter picks dead letters. A zero field picks all.
type LetterFilter struct {
	Sinks    []string
	Campaign string
	Class    string
	User     string
	// From and To are when it became a dead letter: From is included, To is not.
	From, To time.Time
}

func (f *LetterFilter) matches(l *Letter) bool {
	return (f.Campaign == "" || l.campaign() == f.Campaign) && (f.Class == "" || l.Class == f.Class) &&
		(f.User == "" || l.Grant != nil && l.Grant.User == f.User) &&
		(f.From.IsZero() || !l.Last.Before(f.From)) && (f.To.IsZero() || l.Last.Before(f.To))
}

// Classes are what LetterFilter.Class can be.
func Classes() []string {
	return []string{
		hongbao.ClassUnknown.String(), hongbao.ClassTransient.String(), hongbao.ClassPermanent.String(),
		hongbao.ClassConflict.String(), hongbao.ClassBroken.String(),
	}
}

func (f *LetterFilter) check() error {
	var errs []error
	for _, s := range f.Sinks {
		if err := hongbao.CheckCampaignID(s); err != nil {
			errs = append(errs, fmt.Errorf("sink %.80q: %w", s, err))
		}
	}
	if f.Class != "" && !slices.Contains(Classes(), f.Class) {
		errs = append(errs, fmt.Errorf("class %.40q does not exist: want one of %s", f.Class, strings.Join(Classes(), ", ")))
	}
	err := (&Filter{Campaign: f.Campaign, User: f.User, From: f.From, To: f.To}).check(1)
	return errors.Join(append(errs, err)...)
}

// ParseLetterID takes an id apart: <sink>/<shard>/<id in the stream>.
func ParseLetterID(id string) (sink string, shard int, stream string, err error) {
	f := strings.Split(id, "/")
	if len(f) == 3 {
		shard, err = strconv.Atoi(f[1])
	}
	if len(f) != 3 || err != nil || shard < 0 || hongbao.CheckCampaignID(f[0]) != nil || !isStreamID(f[2]) {
		return "", 0, "", hongbao.Errorf(hongbao.ClassPermanent,
			"letter %.120q: want <sink>/<shard>/<id> as `hongbao dead list` prints it", id)
	}
	return f[0], shard, f[2], nil
}

func isStreamID(id string) bool {
	ms, n, ok := strings.Cut(id, "-")
	for _, part := range []string{ms, n} {
		if _, err := strconv.ParseUint(part, 10, 64); err != nil {
			return false
		}
	}
	return ok
}

// letterPage is how many letters are read at once.
const letterPage = 500

// eachLetter calls fn for pages of a sink's dead letters on a shard, in the order in which they died, after an id of
// the stream; "" begins.
func eachLetter(ctx context.Context, s *source, shard int, sink, after string, fn func([]Letter) error) error {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	for {
		raw, err := shards.Of(s.rdb, s.space.Shard(shard)).Letters(ctx, sink, from, "+", letterPage)
		if err != nil {
			return err
		}
		page := make([]Letter, len(raw))
		for i := range raw {
			page[i] = parseLetter(sink, shard, &raw[i])
		}
		if err := fn(page); err != nil || len(raw) < letterPage {
			return err
		}
		from = "(" + raw[len(raw)-1].ID
	}
}

// letters hands on the grants of a sink's dead letters whose seq is at most last.
func (s *source) letters(ctx context.Context, shard int, sink string, last int64, fn func(*part) error) error {
	return eachLetter(ctx, s, shard, sink, "", func(page []Letter) error {
		p := &part{events: int64(len(page))}
		for i := range page {
			switch g := page[i].Grant; {
			case g == nil:
				p.read.Unreadable++
			case g.Seq <= last:
				p.grants = append(p.grants, *g)
				p.read.FromDead++
			}
		}
		slices.SortStableFunc(p.grants, func(a, b hongbao.Grant) int { return cmp.Compare(a.Seq, b.Seq) })
		p.grants = slices.CompactFunc(p.grants, func(a, b hongbao.Grant) bool { return a.Seq == b.Seq })
		return fn(p)
	})
}
