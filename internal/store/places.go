package store

import (
	"context"

	"github.com/hongbao-project/hongbao"
)

// Home returns the campaign's first shard. The campaign's hash there has the number of shards.
func (c Campaign) Home() Place { return c.store.Home(c.id) }

// Places reads the number of the campaign's shards at its home, and returns the shards in order. If the home does not
// have the campaign, it returns only the home. A caller with the campaign's specification should call Store.Places
// instead.
func (c Campaign) Places(ctx context.Context) ([]Place, error) {
	f, err := c.Home().fields(ctx, placesField)
	if err != nil {
		return nil, err
	}
	return c.placesIn(f)
}

// placesIn is Places for a caller that has already read the field places at the campaign's home.
func (c Campaign) placesIn(f *CampaignFields) ([]Place, error) {
	if !f.Has(placesField) {
		return c.placesOf(1)
	}
	return c.placesOf(int(f.Places)) // 0 if the field can't be read
}

// placesOf returns the campaign's n places. n comes from Redis, so it may be invalid.
func (c Campaign) placesOf(n int) ([]Place, error) {
	if n < 1 || n > c.store.Len() {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %d shards, and the deployment "+
			"has %d: someone wrote to %s", c.id, n, c.store.Len(), c.Home().Keys.Campaign(c.id))
	}
	return c.store.Places(c.id, n), nil
}
