package shards

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// span is which events an entry of the stream says it has.
type span struct {
	first, last int64
	id          string
}

// spans are those of all entries of a shard's stream, by their first event.
type spans struct {
	list []span
	end  string // the last entry that was read
}

func (s *spans) forget() { *s = spans{} }

// read reads what has come since the last time. Entries that can't be read have no events.
func (s *spans) read(ctx context.Context, rdb redis.UniversalClient, k lua.Keys) error {
	const page = 500
	for more := true; more; {
		from := "-"
		if s.end != "" {
			from = "(" + s.end
		}
		raw, err := Of(rdb, k).Range(ctx, from, "+", page)
		if err != nil {
			return err
		}
		for i := range raw {
			s.end = raw[i].ID
			e, err := hongbao.ParseEntry(k.Index(), raw[i].ID, raw[i].Values)
			if errors.Is(err, hongbao.ErrNewerEntry) {
				return err
			}
			if err == nil {
				s.list = append(s.list, span{e.Seq, e.Last(), e.ID})
			}
		}
		more = len(raw) == page
	}
	slices.SortFunc(s.list, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return nil
}

// beside gives the ids of the other entries that have one of e's events, in the order of the stream.
func (s *spans) beside(e *hongbao.Entry) []string {
	// An entry holds at most MaxEntryGrants events, so none that begins further ahead reaches e.
	at, _ := slices.BinarySearchFunc(s.list, e.Seq-hongbao.MaxEntryGrants+1, func(x span, seq int64) int { return cmp.Compare(x.first, seq) })
	var ids []string
	for _, x := range s.list[at:] {
		if x.first > e.Last() {
			break
		}
		if x.last >= e.Seq && x.id != e.ID {
			ids = append(ids, x.id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func before(a, b string) bool { return compareIDs(a, b) < 0 }

// compareIDs orders ids of a stream, as Redis writes them.
func compareIDs(a, b string) int {
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0 // Redis writes no such id
		}
		return n
	}
	ams, an, _ := strings.Cut(a, "-")
	bms, bn, _ := strings.Cut(b, "-")
	return cmp.Or(cmp.Compare(number(ams), number(bms)), cmp.Compare(number(an), number(bn)))
}
