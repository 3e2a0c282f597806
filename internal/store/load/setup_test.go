package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// bundle is a deployment of four shards, and a client whose calls fail from a chosen script call on.
type bundle struct {
	rdb    redis.UniversalClient
	store  *store.Store
	mortal *mortal
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{store: storetest.Initialized(t, 4), mortal: &mortal{client: testkit.Redis(t).Client(t)}}
	b.rdb = b.store.Redis()
	b.mortal.client.AddHook(b.mortal)
	return b
}

// mortal is a client whose process seems to die at a script call. lives is the number of calls before it. All later
// script calls fail. If ran is true, the call at which the process dies still runs.
type mortal struct {
	client *redis.Client
	mu     sync.Mutex // scripts are called concurrently
	lives  int        // script calls that are left
	ran    bool
}

var errKilled = errors.New("killed")

func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return m.die(func() error { return next(ctx, cmd) }, cmd)
	}
}

// ProcessPipelineHook is needed because the first script call on a shard is sent in a pipeline, together with a
// SCRIPT LOAD.
func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return m.die(func() error { return next(ctx, cmds) }, cmds...)
	}
}

func (*mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortal) die(run func() error, cmds ...redis.Cmder) error {
	if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" }) {
		return run()
	}
	m.mu.Lock()
	m.lives--
	alive, last := m.lives >= 0, m.lives < 0 && m.ran
	m.ran = m.ran && !last
	m.mu.Unlock()
	if alive {
		return run()
	}
	if last {
		_ = run()
	}
	for _, cmd := range cmds {
		cmd.SetErr(errKilled)
	}
	return errKilled
}

func (b *bundle) loader(t *testing.T, rdb redis.UniversalClient) *Loader {
	t.Helper()
	s, err := New(b.store.Over(rdb), Config{Chunk: 2,
		Codes: func(_ context.Context, id string, after int64, n int) (codes []string, err error) {
			for p := after + 1; p <= min(after+int64(n), packets); p++ {
				codes = append(codes, codeOf(id, p))
			}
			return codes, nil
		}})
	require.NoError(t, err)
	return s
}

func codeOf(id string, packet int64) string { return fmt.Sprintf("%s-%d", id, packet) }

// packets is the number of packets of each test campaign. It is no multiple of 3 or 4, the numbers of places.
const packets = 22

// coupons returns a campaign with codes, with its plan and the plan's hash.
func coupons(t *testing.T, id string, places int) (hongbao.Campaign, *campaign.Plan, string) {
	t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	c := campaign.Complete(hongbao.Campaign{
		ID: id, Name: "Coffee", Kind: hongbao.KindCoupon, Currency: "CNY", Total: 1_000, Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitTiers,
			Tiers: []hongbao.Tier{{Amount: 10, Packets: 2}, {Amount: 49, Packets: 20}}},
		From: now.Add(-time.Hour), To: now.Add(time.Hour), Sponsor: "acme", Shards: places,
		Codes: &hongbao.Codes{File: "codes.txt"},
	})
	require.NoError(t, campaign.Validate(c, now))
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	require.NoError(t, err)
	return c, plan, campaign.Commit(c, seed)
}

// loadedWhole checks that each packet and its code is on its place, once and in order, and that all places are open.
func (b *bundle) loadedWhole(t *testing.T, c *hongbao.Campaign, plan *campaign.Plan) {
	t.Helper()
	for j, k := range b.store.Places(c.ID, c.Places()) {
		var stock []string
		codes := map[string]string{}
		for p := int64(j) + 1; p <= packets; p += int64(c.Places()) {
			stock = append(stock, fmt.Sprintf("%d %d", p, plan.Amounts[p-1]))
			codes[strconv.FormatInt(p, 10)] = codeOf(c.ID, p)
		}
		has, err := b.rdb.LRange(t.Context(), k.Keys.Stock(c.ID), 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, stock, has)
		coded, err := b.rdb.HGetAll(t.Context(), k.Keys.Codes(c.ID)).Result()
		require.NoError(t, err)
		require.Equal(t, codes, coded)
	}
	require.Equal(t, slices.Repeat([]string{store.StateOpen}, c.Places()), b.states(t, c))
}

// states returns the states of a campaign's places, empty where the campaign is missing.
func (b *bundle) states(t *testing.T, c *hongbao.Campaign) (states []string) {
	t.Helper()
	for _, k := range b.store.Places(c.ID, c.Places()) {
		m, err := k.CampaignFields(t.Context())
		require.NoError(t, err)
		states = append(states, m.State)
	}
	return states
}
