package shards

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

// PlacesOf reads at a campaign's home over which shards it is dealt, in their order. A campaign that is not there
// gives its home alone: a caller that has its specification goes by that, with Layout.Places.
func PlacesOf(ctx context.Context, rdb redis.Cmdable, layout *Layout, campaign string) ([]Keys, error) {
	n, err := rdb.HGet(ctx, layout.Home(campaign).Campaign(campaign), placesField).Int()
	if errors.Is(err, redis.Nil) {
		n, err = 1, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask over which shards campaign %s is dealt: %w", campaign, Classify(err))
	}
	return layout.checkedPlaces(campaign, n)
}

// PlacesIn is PlacesOf for a reader who has the fields of the campaign's hash at its home already.
func (l *Layout) PlacesIn(campaign string, fields map[string]string) ([]Keys, error) {
	text, spread := fields[placesField]
	if !spread {
		return l.Places(campaign, 1), nil
	}
	n, _ := strconv.Atoi(text) // 0 for a text that is no number
	return l.checkedPlaces(campaign, n)
}

// checkedPlaces are a campaign's places by what Redis says of their number.
func (l *Layout) checkedPlaces(campaign string, n int) ([]Keys, error) {
	if n < 1 || n > l.Len() {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %d shards, and the deployment "+
			"has %d: somebody wrote to %s", campaign, n, l.Len(), l.Home(campaign).Campaign(campaign))
	}
	return l.Places(campaign, n), nil
}
