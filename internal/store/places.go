package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// placesField is the field of a campaign's hash with the number of its shards. It is absent if the campaign has one
// shard.
const placesField = "places"

// Home returns the campaign's first shard. The campaign's hash there has the number of shards.
func (c Campaign) Home() *Shard { return c.store.Home(c.id) }

// Places reads the number of the campaign's shards at its home, and returns the shards in order. If the home does not
// have the campaign, it returns only the home. A caller with the campaign's specification should call Store.Places
// instead.
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

// placesIn is Places for a caller that has already read the campaign's hash at its home.
func (c Campaign) placesIn(fields map[string]string) ([]*Shard, error) {
	text, spread := fields[placesField]
	if !spread {
		return c.placesOf(1)
	}
	n, _ := strconv.Atoi(text) // 0 if the field is not a number
	return c.placesOf(n)
}

// placesOf returns the campaign's n places. n comes from Redis, so it may be invalid.
func (c Campaign) placesOf(n int) ([]*Shard, error) {
	if n < 1 || n > c.store.Len() {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %d shards, and the deployment "+
			"has %d: someone wrote to %s", c.id, n, c.store.Len(), c.Home().Keys.Campaign(c.id))
	}
	return c.store.Places(c.id, n), nil
}
