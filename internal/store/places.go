package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// placesField is the field of a campaign's hash that says over how many shards it is dealt; it is absent for one.
const placesField = "places"

// Home returns the campaign's first shard, which knows on how many the campaign is dealt.
func (c Campaign) Home() *Shard { return c.store.Home(c.id) }

// Places reads at the campaign's home over which shards it is dealt, in their order. A campaign that is not there gives
// its home alone: a caller that has its specification goes by that, with Store.Places.
func (c Campaign) Places(ctx context.Context) ([]*Shard, error) {
	n, err := c.store.rdb.HGet(ctx, c.Home().Keys.Campaign(c.id), placesField).Int()
	if errors.Is(err, redis.Nil) {
		n, err = 1, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask over which shards campaign %s is dealt: %w", c.id, Classify(err))
	}
	return c.placesOf(n)
}

// placesIn is Places for a reader who has the fields of the campaign's hash at its home already.
func (c Campaign) placesIn(fields map[string]string) ([]*Shard, error) {
	text, spread := fields[placesField]
	if !spread {
		return c.placesOf(1)
	}
	n, _ := strconv.Atoi(text) // 0 for a text that is no number
	return c.placesOf(n)
}

// placesOf are the campaign's places by what Redis says of their number.
func (c Campaign) placesOf(n int) ([]*Shard, error) {
	if n < 1 || n > c.store.Len() {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %d shards, and the deployment "+
			"has %d: somebody wrote to %s", c.id, n, c.store.Len(), c.Home().Keys.Campaign(c.id))
	}
	return c.store.Places(c.id, n), nil
}
