package couponrush_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/examples/couponrush"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/producer"
)

// Four coupons, at most three a user and two a day. A grab is repeated with its request id, as after a lost answer.
func Example() {
	ctx := context.Background()
	mini, err := miniredis.Run()
	check(err)
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true})
	space, err := shards.NewLayout(hongbao.Space{Prefix: "hb", Shards: 1})
	check(err)
	check(shards.Found(ctx, rdb, space, shards.FoundCall{Deployment: "example"}))

	now := time.Now().Truncate(time.Millisecond)
	limits := couponrush.Limits{Max: 4, UserMax: 3, UserPerDayMax: 2}
	c := couponrush.Spec("rush", limits, now.Add(-time.Hour), now.Add(time.Hour), noonZone(now))
	check(load(ctx, rdb, space, c, []string{"SPRING-4711-KXQA", "SPRING-0815-MMNT", "SPRING-2718-ZWEB",
		"SPRING-3141-PYRD"}))

	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = rdb, space.Space, "example"
	p, err := producer.New(cfg)
	check(err)
	r := couponrush.Rush{Producer: p, Redis: rdb, Space: space, Campaign: c}
	for _, g := range [][2]string{{"ann", "a1"}, {"ann", "a2"}, {"ann", "a2"}, {"ann", "a3"}, {"bob", "b1"},
		{"cleo", "c1"}, {"dora", "d1"}} {
		code, coupon, err := r.Grab(ctx, g[0], g[1])
		check(err)
		fmt.Println(strings.TrimSpace(fmt.Sprintf("%-4s %s: %d %s", g[0], g[1], code, coupon)))
	}
	check(p.Close(ctx))
	// Output:
	// ann  a1: 0 SPRING-4711-KXQA
	// ann  a2: 0 SPRING-0815-MMNT
	// ann  a2: 0 SPRING-0815-MMNT
	// ann  a3: 1
	// bob  b1: 0 SPRING-2718-ZWEB
	// cleo c1: 0 SPRING-3141-PYRD
	// dora d1: 3
}

// load plans and loads the campaign with these codes; `hongbao campaign create` draws them and keeps them in the
// ledger.
func load(ctx context.Context, rdb redis.UniversalClient, space *shards.Layout, c hongbao.Campaign,
	codes []string) error {
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	if err != nil {
		return err
	}
	store, err := campaign.NewStore(campaign.StoreConfig{
		Redis: rdb, Space: space.Space, Chunk: campaign.MaxChunk,
		Codes: func(_ context.Context, _ string, after int64, _ int) ([]string, error) { return codes[after:], nil },
	})
	if err != nil {
		return err
	}
	return store.Load(ctx, c, plan, campaign.Commit(c, seed), nil)
}

// noonZone is a time zone in which it is about noon: no midnight comes while the example runs.
func noonZone(now time.Time) string {
	if ahead := 12 - now.UTC().Hour(); ahead >= 0 {
		return fmt.Sprintf("Etc/GMT-%d", ahead) // POSIX: minus is east
	}
	return fmt.Sprintf("Etc/GMT+%d", now.UTC().Hour()-12)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
