package model

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

// Sum is a sum of money in one currency.
type Sum struct {
	Currency string
	Amount   hongbao.Amount
}

// Sums has one sum for each currency, in the order of their names.
type Sums []Sum

// Add adds an amount. It leaves out coupons without a value, which have no currency.
func (s *Sums) Add(a hongbao.Amount, currency string) {
	if currency == "" {
		return
	}
	i, found := slices.BinarySearchFunc(*s, currency, func(x Sum, name string) int { return cmp.Compare(x.Currency, name) })
	if !found {
		*s = slices.Insert(*s, i, Sum{Currency: currency})
	}
	(*s)[i].Amount += a
}

// AddAll adds other sums.
func (s *Sums) AddAll(others Sums) {
	for _, x := range others {
		s.Add(x.Amount, x.Currency)
	}
}

// String returns the sums in English.
func (s Sums) String() string {
	texts := make([]string, len(s))
	for i, x := range s {
		texts[i] = money.Text(x.Amount, x.Currency)
	}
	return strings.Join(texts, ", ")
}

// LetterGroup has the dead letters of one sink and class whose reasons differ only in the user and in words with digits.
type LetterGroup struct {
	Sink, Class string
	// Whole says that the letters are entries, of which no grant is known: forged or unreadable ones.
	Whole bool
	// Reason is the reason of the oldest letter. Part is the longest text that all reasons of the group have in common:
	// as a filter it selects the group, and perhaps others.
	Reason, Part string
	Letters      int64
	Unvalued     int64 // letters of a grant whose amount is not known
	Sums         Sums
	Campaigns    []string  // ids, in their order
	First, Last  time.Time // when the oldest and the newest letter were written
}

// LetterGroups are the groups of the letters that a filter selects. If More is set, there are other letters that were not
// read.
type LetterGroups struct {
	Groups  []LetterGroup
	Letters int64
	More    bool
}

// numbered matches words with a digit, such as numbers and the ids of users and requests.
var numbered = regexp.MustCompile(`[\pL\pN_-]*[0-9][\pL\pN_-]*`)

// gap stands for what differs in the reasons of a group. No reason has it: reasons are valid UTF-8.
const gap = "\xff"

// kind returns the letter's reason with gaps in place of what may differ from letter to letter.
func (l *Letter) kind() string {
	text := l.Reason
	if l.Grant != nil && l.Grant.User != "" {
		text = strings.ReplaceAll(text, l.Grant.User, gap)
	}
	return numbered.ReplaceAllString(text, gap)
}

// shortest is how long a part is at least, in bytes: a shorter one would select letters of other groups.
const shortest = 10

// fixed returns the longest part of a kind between its gaps. If there is none that is long enough, it returns the reason.
func fixed(kind, reason string) string {
	part := ""
	for p := range strings.SplitSeq(kind, gap) {
		if p = strings.TrimSpace(p); len(p) > len(part) {
			part = p
		}
	}
	if len(part) < shortest {
		return reason
	}
	return part
}

// GroupLetters groups letters by sink, class and reason, the largest group first.
func GroupLetters(list []Letter) []LetterGroup {
	type key struct {
		sink, class, kind string
		whole             bool
	}
	groups, campaigns := map[key]*LetterGroup{}, map[key]map[string]bool{}
	for i := range list {
		l := &list[i]
		k := key{l.Sink, l.Class, l.kind(), l.Seq == 0}
		g := groups[k]
		if g == nil {
			g = &LetterGroup{Sink: l.Sink, Class: l.Class, Whole: k.whole, Reason: l.Reason, Part: fixed(k.kind, l.Reason),
				First: l.Last, Last: l.Last}
			groups[k], campaigns[k] = g, map[string]bool{}
		}
		if l.Last.Before(g.First) {
			g.First, g.Reason = l.Last, l.Reason
		}
		if l.Last.After(g.Last) {
			g.Last = l.Last
		}
		switch g.Letters++; {
		case l.Grant != nil:
			g.Sums.Add(l.Grant.Amount, l.Grant.Currency)
		case !g.Whole:
			g.Unvalued++
		}
		if id := l.Campaign(); id != "" {
			campaigns[k][id] = true
		}
	}
	out := make([]LetterGroup, 0, len(groups))
	for k, g := range groups {
		g.Campaigns = slices.Sorted(maps.Keys(campaigns[k]))
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b LetterGroup) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), a.First.Compare(b.First), cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
