package redpacket_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/examples/redpacket"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/producer"
)

// Three packets, four users, and one who asks twice.
func Example() {
	ctx := context.Background()
	mini, err := miniredis.Run()
	check(err)
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true})
	space, err := shards.NewLayout(hongbao.Space{Prefix: "hb", Shards: 1})
	check(err)
	check(shards.Found(ctx, rdb, space, shards.FoundCall{Deployment: "example"}))

	c := rain("rain", 3, 30, hongbao.Split{Mode: hongbao.SplitEven})
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	check(err)
	store, err := campaign.NewStore(campaign.StoreConfig{Redis: rdb, Space: space.Space, Chunk: campaign.MaxChunk})
	check(err)
	check(store.Load(ctx, c, plan, campaign.Commit(c, seed), nil))

	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = rdb, space.Space, "example"
	p, err := producer.New(cfg)
	check(err)
	g := redpacket.Grabber{Producer: p, Campaign: "rain"}
	for _, user := range []string{"ann", "bob", "ann", "cleo", "dora"} {
		code, receipt, err := g.Grab(ctx, user)
		check(err)
		text, err := json.Marshal(receipt)
		check(err)
		fmt.Printf("%-4s %2s %s\n", user, code, text)
	}
	check(p.Close(ctx))
	// Output:
	// ann   0 {"id":1,"money":10,"userId":"ann"}
	// bob   0 {"id":2,"money":10,"userId":"bob"}
	// ann   1 null
	// cleo  0 {"id":3,"money":10,"userId":"cleo"}
	// dora -1 null
}

// rain is a campaign that is open now.
func rain(id string, packets int64, total hongbao.Amount, split hongbao.Split) hongbao.Campaign {
	now := time.Now().Truncate(time.Millisecond)
	return campaign.Complete(hongbao.Campaign{
		ID: id, Name: "Rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: total, Packets: packets, Split: split,
		From: now.Add(-time.Hour), To: now.Add(time.Hour), Sponsor: "acme",
	})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
