package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Held has a user's receipts in a campaign on one place, and what decides whether the user may see them.
type Held struct {
	Place    *Shard
	Receipts []hongbao.Receipt // without codes
	Currency string
	Codes    bool // the packets have codes
	Class    hongbao.Durability
	// Open is nil, or ErrFrozen. If it is ErrFrozen, everything here may be out of date, including an error.
	Open error

	places string // number of the campaign's shards, as Redis has it
}

// UserHeld returns what a user has on one place. The error is ErrNotInRedis (Permanent) if the campaign is not there.
// It is also ErrLost if Redis has lost something of the campaign and may have lost the user's receipts. The ledger
// has those receipts.
func (k *Shard) UserHeld(ctx context.Context, campaign, user string) (Held, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return Held{Place: k}, err
	}
	list, errs := heldOn(ctx, node, []*Shard{k}, campaign, user)
	return list[0], errs[0]
}

// Held returns what a user has in the campaign, on each of its places in their order. If one place fails, there is an
// error, because the receipts of the other places are not complete. list then has the results so far.
func (c Campaign) Held(ctx context.Context, user string) (list []Held, err error) {
	home, err := c.Home().UserHeld(ctx, c.id, user)
	list = []Held{home}
	if err != nil || home.places == "" {
		return list, err
	}
	n, _ := strconv.Atoi(home.places) // 0 for a text that is no number
	places, err := c.placesOf(n)
	if err != nil {
		return list, err
	}
	others, errs := c.heldOver(ctx, places[1:], user)
	for i := range errs {
		if errs[i] != nil {
			errs[i] = onPlace(others[i].Place, n, errs[i])
		}
	}
	return append(list, others...), errors.Join(errs...)
}

// heldOver reads from all places at once: with one transaction if there is only one server.
func (c Campaign) heldOver(ctx context.Context, places []*Shard, user string) ([]Held, []error) {
	if _, cluster := c.store.rdb.(*redis.ClusterClient); !cluster {
		return heldOn(ctx, c.store.rdb, places, c.id, user)
	}
	return Ask(len(places), AllAtOnce, func(i int) (Held, error) { return places[i].UserHeld(ctx, c.id, user) })
}

// heldOn reads from places on one server, at one instant, since the campaign may leave Redis meanwhile. node is the
// client of that server. The shards keep their own client, because their state belongs to the process, not to a node.
func heldOn(ctx context.Context, node redis.UniversalClient, places []*Shard, campaign, user string) ([]Held, []error) {
	list, errs := make([]Held, len(places)), make([]error, len(places))
	reads := make([]func() (Held, error), len(places))
	_, _ = node.TxPipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		server := p.Info(ctx, "server", "replication")
		for i, k := range places {
			reads[i] = k.askHeld(ctx, p, server, campaign, user)
		}
		return nil
	})
	for i, read := range reads {
		list[i], errs[i] = read()
	}
	return list, errs
}

// askHeld queues the reads of what a user has in a pipeline. It returns the function that reads the answers. server
// is the INFO that is ahead of them in the pipeline.
func (k *Shard) askHeld(ctx context.Context, p redis.Pipeliner, server *redis.StringCmd,
	campaign, user string) func() (Held, error) {
	open, text := k.askOpenOn(ctx, p, server), p.HGet(ctx, k.Keys.Receipts(campaign), user)
	fields := p.HMGet(ctx, k.Keys.Campaign(campaign), "from", LostField, "state", CodesField, "currency", "durability",
		placesField)
	return func() (Held, error) {
		h := Held{Place: k}
		err := text.Err()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		if err = cmp.Or(server.Err(), fields.Err(), err); err != nil {
			return h, fmt.Errorf("read the receipts of user %s in campaign %s: %w", user, campaign, Classify(err))
		}
		h.Open = open()
		return k.parseHeld(&h, campaign, fields.Val(), text.Val())
	}
}

func (k *Shard) parseHeld(h *Held, campaign string, v []any, receipts string) (Held, error) {
	h.Codes = v[3] == "1"
	h.Currency, _ = v[4].(string) // absent: none
	class, _ := v[5].(string)
	h.Class = hongbao.Durability(class)
	h.places, _ = v[6].(string)
	from, there := v[0].(string)
	switch lost := v[1] != nil || v[2] == StateFrozen; {
	case !there:
		return *h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", campaign, ErrNotInRedis)
	case receipts == "" && lost:
		return *h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w: %w", campaign, ErrNotInRedis, ErrLost)
	}
	start, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		return *h, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis, field from: %w", campaign, err)
	}
	h.Receipts, err = ParseReceipts(k.Keys.Index(), start, receipts)
	return *h, err
}

// ReceiptsOf returns the receipts of all places, ordered by time.
func ReceiptsOf(list []Held) (all []hongbao.Receipt) {
	for i := range list {
		all = append(all, list[i].Receipts...)
	}
	if len(list) > 1 {
		slices.SortStableFunc(all, func(a, b hongbao.Receipt) int { return a.Time.Compare(b.Time) })
	}
	return all
}
