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

// ErrNotFinal says that a campaign's winners are not final: something is left, or the campaign is not open, or more
// packets were announced. ErrOvertaken says that somebody else began to build the same filter later.
var (
	ErrNotFinal  = errors.New("the winners are not final")
	ErrOvertaken = errors.New("somebody else builds the same filter")
)

// restored is the end of a revision that says that packets may have come back to the stock: see lua/revise.lua.
var restored = regexp.MustCompile(`\.r\d+$`)

// generationOf is the newest generation by a campaign's revision, see Terms.Revision.
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

// CountWinners tells how many users hold packets of a campaign on this place, if nothing is left there and the campaign
// is open and of that revision; else ErrNotFinal.
func (k *Shard) CountWinners(ctx context.Context, campaign, revision string) (int64, error) {
	reply, err := k.askWinners(ctx, campaign, revision, "")
	if err != nil {
		return 0, err
	}
	r := replyReader{rest: reply}
	return r.int64(), r.done(winnersScript)
}

// Winners calls fn for every user who holds packets of a campaign on this place, under the same conditions. A user may
// come more than once. The context must bear the epoch in which the caller counted them (WithEpoch): the cursors of one
// run of a server mean nothing to another one.
func (k *Shard) Winners(ctx context.Context, campaign, revision string, fn func(user string)) error {
	for cursor := "0"; ; {
		reply, err := k.askWinners(ctx, campaign, revision, cursor)
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

// winnersAtOnce is about how many users one call reads: Redis runs its script for some 0.5 ms.
const winnersAtOnce = 1000

// askWinners returns what follows the first word of the reply, at least one text.
func (k *Shard) askWinners(ctx context.Context, campaign, revision, cursor string) ([]string, error) {
	generations, err := generationOf(revision)
	if err != nil {
		return nil, err
	}
	keys := []string{k.Keys.Campaign(campaign), k.Keys.Receipts(campaign)}
	for g := range generations {
		keys = append(keys, k.Keys.StockOf(campaign, 1+g))
	}
	reply, err := k.run(ctx, winnersScript, keys, []any{revision, cursor, winnersAtOnce})
	if err != nil {
		return nil, err
	}
	if len(reply) < 2 {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "script winners answered %.80q", reply)
	}
	if reply[0] == "refused" {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "campaign %s on shard %d: %w (%s)", campaign, k.Keys.Index(),
			ErrNotFinal, reply[1])
	}
	return reply[1:], nil
}

// FilterPart is one part of a filter, for PutFilter.
type FilterPart struct {
	Campaign, Revision string
	// By is a token of who builds the filter. Whoever puts part 0 last is the one who may go on.
	By string
	// Name is the number of the part, from 0, or FilterHead, which is put last.
	Name string
	Text []byte
}

// FilterHead is the name of the head of a filter.
const FilterHead = "head"

// PutFilter puts a part of a filter to the campaign's home. ErrNotFinal if the campaign is not open or of another
// revision, ErrOvertaken if somebody else has begun since.
func (k *Shard) PutFilter(ctx context.Context, p *FilterPart) error {
	reply, err := k.run(ctx, putFilterScript, []string{k.Keys.Campaign(p.Campaign), k.Keys.Filter(p.Campaign)},
		[]any{p.Revision, p.By, p.Name, p.Text})
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

// FilterPart reads a part of the filter of a campaign at its home, by its name; false if it is not there.
func (k *Shard) FilterPart(ctx context.Context, campaign, name string) (string, bool, error) {
	text, err := k.rdb.HGet(ctx, k.Keys.Filter(campaign), name).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the filter of the winners of campaign %s: %w", campaign, Classify(err))
	}
	return text, true, nil
}

// WantFilter asks the workers for a filter of a campaign's winners. Whoever still wants it after a second asks again:
// each attempt to build it takes the wish away.
func (c Campaign) WantFilter(ctx context.Context, revision string) error {
	if err := c.store.rdb.HSet(ctx, c.store.filtersWanted(), c.id, revision).Err(); err != nil {
		return fmt.Errorf("ask for a filter of the winners of campaign %s: %w", c.id, Classify(err))
	}
	return nil
}

// WantedFilters returns the campaigns whose filters are wanted, each with its revision.
func (s *Store) WantedFilters(ctx context.Context) (map[string]string, error) {
	wanted, err := s.rdb.HGetAll(ctx, s.filtersWanted()).Result()
	if err != nil {
		return nil, fmt.Errorf("ask which filters are wanted: %w", Classify(err))
	}
	return wanted, nil
}

// UnwantFilter removes the wish for a campaign's filter.
func (c Campaign) UnwantFilter(ctx context.Context) error {
	if err := c.store.rdb.HDel(ctx, c.store.filtersWanted(), c.id).Err(); err != nil {
		return fmt.Errorf("note that a filter of campaign %s was tried: %w", c.id, Classify(err))
	}
	return nil
}
