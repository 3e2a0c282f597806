package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

var (
	winnersScript   = newDrainScript("winners", "fields") // it only reads
	putFilterScript = newScript("put_filter", "fields")
)

// ErrNotFinal says that a campaign's winners are not final: packets are left, the campaign is not open, or more
// packets were announced. ErrOvertaken says that a different caller has started to build the same filter since.
var (
	ErrNotFinal  = errors.New("the winners are not final")
	ErrOvertaken = errors.New("another worker builds the same filter")
)

// restored matches the suffix that lua/revise.lua adds to a revision when a restore may return packets to the stock.
var restored = regexp.MustCompile(`\.r\d+$`)

// generationOf parses the newest generation in a campaign's revision; see Terms.Revision.
func generationOf(revision string) (int64, error) {
	_, text, later := strings.Cut(restored.ReplaceAllString(revision, ""), ".")
	if !later {
		return 1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 2 || n > MaxGenerations {
		return 0, hongbao.Errorf(hongbao.ClassBroken, "the revision %.80q of a campaign has no generation from 2 to %d",
			revision, MaxGenerations)
	}
	return n, nil
}

// CountWinners returns how many users have packets of a campaign on this place. The error is ErrNotFinal if the place
// has packets left, or if the campaign is not open or has a different revision.
func (p Place) CountWinners(ctx context.Context, revision string) (int64, error) {
	reply, err := p.askWinners(ctx, revision, "")
	if err != nil {
		return 0, err
	}
	r := replyReader{rest: reply}
	return r.int64(), r.done(winnersScript)
}

// Winners calls fn for every user who has packets of a campaign on this place, under the same conditions as
// CountWinners. It may call fn more than once for a user. The caller counted the winners in the same epoch
// (At), because a server's cursors are valid for one run only.
func (p Place) Winners(ctx context.Context, revision string, fn func(user string)) error {
	for cursor := "0"; ; {
		reply, err := p.askWinners(ctx, revision, cursor)
		if err != nil {
			return err
		}
		for _, user := range reply[1:] {
			fn(user)
		}
		if cursor = reply[0]; cursor == "0" {
			return nil
		}
	}
}

// winnersAtOnce is roughly how many users one call reads. The script then occupies Redis for about 0.5 ms.
const winnersAtOnce = 1000

// askWinners calls winners.lua and returns the reply without its first element. The result is not empty.
func (p Place) askWinners(ctx context.Context, revision, cursor string) ([]string, error) {
	generations, err := generationOf(revision)
	if err != nil {
		return nil, err
	}
	keys := []string{p.Keys.Campaign(p.Campaign), p.Keys.Receipts(p.Campaign)}
	for g := range generations {
		keys = append(keys, p.Keys.StockOf(p.Campaign, 1+g))
	}
	reply, err := p.run(ctx, winnersScript, keys, []any{revision, cursor, winnersAtOnce})
	if err != nil {
		return nil, err
	}
	if len(reply) < 2 {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "script winners answered %.80q", reply)
	}
	if reply[0] == "refused" {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "campaign %s on shard %d: %w (%s)", p.Campaign, p.Keys.Index(),
			ErrNotFinal, reply[1])
	}
	return reply[1:], nil
}

// FilterPart is one part of a filter, for PutFilter.
type FilterPart struct {
	Revision string
	// By is a token of the caller that builds the filter. A caller that puts part 0 takes over; every other caller
	// must stop.
	By string
	// Name is the number of the part, from 0. The last part to put is FilterHead.
	Name string
	Text []byte
}

// FilterHead is the name of the head of a filter.
const FilterHead = "head"

// PutFilter stores a part of a filter at the place, which must be the campaign's home. The error is ErrNotFinal if the
// campaign is not open or has a different revision. It is ErrOvertaken if this caller was not the last to put part 0.
func (p Place) PutFilter(ctx context.Context, part *FilterPart) error {
	reply, err := p.run(ctx, putFilterScript, []string{p.Keys.Campaign(p.Campaign), p.Keys.Filter(p.Campaign)},
		[]any{part.Revision, part.By, part.Name, part.Text})
	if err != nil {
		return err
	}
	r := replyReader{rest: reply}
	why := ErrNotFinal
	if r.string() == "ok" {
		return r.done(putFilterScript)
	}
	if r.string() == "builder" {
		why = ErrOvertaken
	}
	if err := r.done(putFilterScript); err != nil {
		return err
	}
	return hongbao.Errorf(hongbao.ClassTransient, "put a filter of the winners of campaign %s: %w", p.Campaign, why)
}

// FilterPart returns a part of a campaign's filter at its home, by its name. It returns false if the part does not
// exist.
func (p Place) FilterPart(ctx context.Context, name string) (string, bool, error) {
	text, err := p.rdb.HGet(ctx, p.Keys.Filter(p.Campaign), name).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the filter of the winners of campaign %s: %w", p.Campaign, Classify(err))
	}
	return text, true, nil
}

// WantFilter asks the workers for a filter of a campaign's winners. Each attempt to build the filter removes the
// request. A caller that still needs the filter after a second must call WantFilter again.
func (c Campaign) WantFilter(ctx context.Context, revision string) error {
	if err := c.store.rdb.HSet(ctx, c.store.filtersWanted(), c.id, revision).Err(); err != nil {
		return fmt.Errorf("ask for a filter of the winners of campaign %s: %w", c.id, Classify(err))
	}
	return nil
}

// WantedFilters returns the campaigns for which a filter was requested, each with its revision.
func (s *Store) WantedFilters(ctx context.Context) (map[string]string, error) {
	wanted, err := s.rdb.HGetAll(ctx, s.filtersWanted()).Result()
	if err != nil {
		return nil, fmt.Errorf("ask which filters are wanted: %w", Classify(err))
	}
	return wanted, nil
}

// UnwantFilter removes the request for a campaign's filter.
func (c Campaign) UnwantFilter(ctx context.Context) error {
	if err := c.store.rdb.HDel(ctx, c.store.filtersWanted(), c.id).Err(); err != nil {
		return fmt.Errorf("note that a filter of campaign %s was tried: %w", c.id, Classify(err))
	}
	return nil
}
