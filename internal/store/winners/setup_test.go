package winners_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bundle is a deployment with campaign rain on all its shards.
type bundle struct {
	rdb    redis.UniversalClient
	store  *store.Store
	places []store.Place
}

func setup(t *testing.T, places int, packets int64) *bundle {
	t.Helper()
	b := &bundle{store: storetest.Initialized(t, places)}
	b.rdb = b.store.Redis()
	c := loaded.Rain("rain", packets, hongbao.Amount(packets*10))
	if places > 1 {
		c.Shards = places
	}
	_, err := loaded.Seeded(t.Context(), b.store, c, campaign.NewSeed())
	require.NoError(t, err)
	b.places = b.store.Places("rain", places)
	return b
}

// drain grants all packets of a place, and returns the winners. User w wins on every place.
func (b *bundle) drain(t *testing.T, place int) (users []string) {
	t.Helper()
	call := &store.GrabCall{MaxBacklog: 1e9, Generation: 1}
	for i := 0; ; i++ {
		user := fmt.Sprintf("w%d-%d", place, i)
		if i == 0 {
			user = "w"
		}
		call.Grabs = []*hongbao.Grab{{Campaign: "rain", User: user, RequestID: "r"}}
		answers, err := b.places[place].Grab(t.Context(), call, nil)
		require.NoError(t, err)
		if answers[0].Outcome == hongbao.OutcomeSoldOut {
			return users
		}
		require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
		users = append(users, user)
	}
}

func (b *bundle) revision(t *testing.T) string {
	t.Helper()
	revision, err := b.rdb.HGet(t.Context(), b.places[0].Keys.Campaign("rain"), "revision").Result()
	require.NoError(t, err)
	return revision
}

func (b *bundle) builder(t *testing.T, rdb redis.UniversalClient) *winners.Builder {
	t.Helper()
	locks, err := b.store.Over(rdb).Locks(store.LockConfig{Lease: 30 * time.Second, Poll: 10 * time.Millisecond})
	require.NoError(t, err)
	made, err := winners.NewBuilder(winners.BuilderConfig{Store: b.store.Over(rdb), Locks: locks, Log: zap.NewNop(),
		Every: 10 * time.Millisecond})
	require.NoError(t, err)
	return made
}

func (b *bundle) fetch(ctx context.Context, revision string) (*winners.Filter, error) {
	return winners.Fetch(ctx, b.places[0], revision)
}
