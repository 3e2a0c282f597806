package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Held is what a user holds in a campaign by Redis, and what it depends on whether he may be told.
type Held struct {
	Receipts []hongbao.Receipt // without codes
	Currency string
	Codes    bool // the packets have codes
	Class    hongbao.Durability
	// Open is nil, or ErrFrozen: then all of it, an error too, may be the past.
	Open error
}

// UserHeld reads what a user holds. ErrNotInRedis (Permanent) if the campaign is not there, with ErrLost as well if Redis
// has lost something of it and may have lost his receipts: the ledger has them.
func (k *Shard) UserHeld(ctx context.Context, campaign, user string) (Held, error) {
	node, err := NodeOf(ctx, k.rdb, k.Keys)
	if err != nil {
		return Held{}, err
	}
	var open func() error
	var text *redis.StringCmd
	var fields *redis.SliceCmd
	_, err = node.TxPipelined(ctx, func(p redis.Pipeliner) error { // one instant: it may leave Redis meanwhile
		open, text = k.askOpen(ctx, p), p.HGet(ctx, k.Keys.Receipts(campaign), user)
		fields = p.HMGet(ctx, k.Keys.Campaign(campaign), "from", LostField, "state", CodesField, "currency", "durability")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Held{}, fmt.Errorf("read the receipts of user %s in campaign %s: %w", user, campaign, Classify(err))
	}
	v := fields.Val()
	h := Held{Open: open(), Codes: v[3] == "1"}
	h.Currency, _ = v[4].(string) // absent: none
	class, _ := v[5].(string)
	h.Class = hongbao.Durability(class)
	from, there := v[0].(string)
	switch lost := v[1] != nil || v[2] == stateFrozen; {
	case !there:
		return h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", campaign, ErrNotInRedis)
	case text.Val() == "" && lost:
		return h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w: %w", campaign, ErrNotInRedis, ErrLost)
	}
	start, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		return h, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis, field from: %w", campaign, err)
	}
	h.Receipts, err = ParseReceipts(k.Keys.Index(), start, text.Val())
	return h, err
}
