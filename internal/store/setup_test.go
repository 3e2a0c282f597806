package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// by returns a decision of the given person, with a reason.
func by(who, why string) stream.Decision { return stream.Decision{By: who, Why: why} }

// bundle is one deployment with one shard.
type bundle struct {
	rdb      *redis.Client
	store    *store.Store
	k        *store.Shard
	eventsOf map[string]stream.SeqRange // by entry id, for entries of written
}

func setup(t *testing.T) *bundle {
	t.Helper()
	if corpusOf(t) != nil {
		return setupOn(t, nil)
	}
	return bundleOf(storetest.Initialized(t, 1))
}

func setupOn(t *testing.T, rdb *redis.Client) *bundle {
	t.Helper()
	tapes := corpusOf(t)
	if tapes == nil {
		return bundleOf(storetest.InitializedOn(t, rdb, 1))
	}
	rdb, tape := tapes.client(t) // each deployment has its own
	st := storetest.InitializedOn(t, rdb, 1)
	tapes.watch(t, st, tape)
	return bundleOf(st)
}

func bundleOf(st *store.Store) *bundle {
	return &bundle{rdb: st.Redis().(*redis.Client), store: st, k: st.Shard(0)}
}

// reached sets the shard's seq, as if it had that many events.
func (b *bundle) reached(t testing.TB, seq int64) {
	t.Helper()
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", seq).Err())
}

func (b *bundle) dump(t *testing.T) map[string]string {
	t.Helper()
	if corpusOf(t) != nil { // a simulation's Redis can't dump
		return contents(t, b.rdb, b.store.Space().Prefix)
	}
	return storetest.Dump(t, b.store)
}

// differ returns the keys whose content differs between two dumps.
func differ(before, after map[string]string) []string {
	var out []string
	for key := range before {
		if before[key] != after[key] {
			out = append(out, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			out = append(out, key)
		}
	}
	return out
}

// spec returns a campaign that is open now; a test may change it and then load it.
func spec(id string, packets int64) hongbao.Campaign {
	c := loaded.Rain(id, packets, hongbao.Amount(packets*10))
	c.Split = hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: c.Total}
	return c
}

func (b *bundle) load(t testing.TB, c hongbao.Campaign) *campaign.Plan {
	t.Helper()
	seed := campaign.NewSeed()
	if corpusOf(t) != nil {
		seed = campaign.Seed{1}
	}
	plan, err := loaded.Seeded(t.Context(), b.store, c, seed)
	require.NoError(t, err)
	return plan
}

var call = storetest.Call

// grab makes one call with a grab for each user. Each grab must be granted.
func (b *bundle) grab(t testing.TB, id string, users ...string) []hongbao.Answer {
	t.Helper()
	return storetest.Grab(t, b.k, id, users...)
}

// events writes entries with the given numbers of grants, and returns their ids.
func (b *bundle) events(t testing.TB, id string, sizes ...int) []string {
	t.Helper()
	var n int64
	for _, s := range sizes {
		n += int64(s)
	}
	b.load(t, spec(id, n))
	u := 0
	for _, s := range sizes {
		users := make([]string, s)
		for i := range users {
			u++
			users[i] = fmt.Sprintf("u%d", u)
		}
		b.grab(t, id, users...)
	}
	return b.ids(t)
}

func (b *bundle) ids(t testing.TB) []string {
	t.Helper()
	raw, err := b.k.Range(t.Context(), "-", "+", 1e6)
	require.NoError(t, err)
	out := make([]string, len(raw))
	for i := range raw {
		out[i] = raw[i].ID
	}
	return out
}

func (b *bundle) group(t testing.TB, name string) {
	t.Helper()
	_, err := b.k.Group(name).Create(t.Context())
	require.NoError(t, err)
}

func (b *bundle) read(t testing.TB, group, consumer string, count int) []store.RawEntry {
	t.Helper()
	out, err := b.k.Group(group).ReadNew(t.Context(), consumer, count, 0)
	require.NoError(t, err)
	return out
}

// owners returns, by entry id, the consumer of each pending entry and the number of its deliveries.
func (b *bundle) owners(t testing.TB, group string) map[string]string {
	t.Helper()
	rows, err := b.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{
		Stream: b.k.Keys.Events(), Group: group, Start: "-", End: "+", Count: 1e6,
	}).Result()
	require.NoError(t, err)
	out := map[string]string{}
	for _, r := range rows {
		out[r.ID] = fmt.Sprintf("%s %d", r.Consumer, r.RetryCount)
	}
	return out
}

// age sets the idle time of pending entries.
func (b *bundle) age(t testing.TB, group, consumer string, idle time.Duration, ids ...string) {
	t.Helper()
	owners := b.owners(t, group)
	for _, id := range ids {
		_, count, _ := strings.Cut(owners[id], " ")
		require.NoError(t, b.rdb.Do(t.Context(), "XCLAIM", b.k.Keys.Events(), group, consumer, 0, id,
			"IDLE", idle.Milliseconds(), "RETRYCOUNT", count, "JUSTID").Err())
	}
}
