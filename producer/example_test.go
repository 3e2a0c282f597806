package producer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/producer"
)

// What a program that takes grabs does. ann asks twice, as a client does that lost the answer, and gets the same one;
// nothing is left for carl.
func Example() {
	rdb, space, stop := loaded("spring-rain", "ann", "bob")
	defer stop()
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = rdb, space, "example"
	p, err := producer.New(cfg) // one for the whole program; it collects the grabs of all goroutines
	check(err)

	ctx := context.Background()
	grab := func(user, requestID string) error {
		answer, err := p.Grab(ctx, &hongbao.Grab{Campaign: "spring-rain", User: user, RequestID: requestID})
		switch {
		case err != nil:
			return err // its class says whether it may have been granted: then the same RequestID gets the same answer
		case !answer.Outcome.Final():
			fmt.Println(user, "is to ask again") // refilling, busy, frozen: nothing was decided
		case answer.Outcome == hongbao.OutcomeGranted:
			fmt.Println(user, "got packet", answer.Receipts[0].Packet, "with", answer.Receipts[0].Amount, "fen")
		case answer.Outcome == hongbao.OutcomeAlreadyGranted:
			fmt.Println(user, "has packet", answer.Receipts[0].Packet, "already")
		default:
			fmt.Println(user, "got nothing:", answer.Outcome) // a refusal is a value, not an error
		}
		return nil
	}
	check(grab("ann", "r1"))
	check(grab("ann", "r1"))
	check(grab("bob", "r2"))
	check(grab("carl", "r3"))
	check(p.Close(ctx)) // waits for the calls that are under way
	// Output:
	// ann got packet 1 with 50 fen
	// ann got packet 1 with 50 fen
	// bob got packet 2 with 50 fen
	// carl got nothing: sold_out
}

// loaded is a Redis in this process with a campaign of a packet for each user, as `hongbao campaign load` leaves it. In
// a program rdb is your client, and the fields of hongbao.Space are deployment.key_prefix and deployment.shards.
func loaded(id string, users ...string) (rdb *redis.Client, space hongbao.Space, stop func()) {
	server, err := miniredis.Run()
	check(err)
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	space = hongbao.Space{Prefix: "hb", Shards: 1}
	layout, err := shards.NewLayout(space)
	check(err)
	ctx, now := context.Background(), time.Now().Truncate(time.Second)
	check(shards.Found(ctx, rdb, layout, shards.FoundCall{Deployment: "example"}))
	c := campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Packets: int64(len(users)),
		Total: hongbao.Amount(50 * len(users)),
		Split: hongbao.Split{Mode: hongbao.SplitEven}, From: now.Add(-time.Minute), To: now.Add(time.Hour), TimeZone: "UTC",
		Sponsor: "acme", Durability: hongbao.DurabilityFast,
	})
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	check(err)
	store, err := campaign.NewStore(campaign.StoreConfig{Redis: rdb, Space: space, Chunk: 1000})
	check(err)
	check(store.Load(ctx, c, plan, campaign.Commit(c, seed), nil))
	return rdb, space, func() { _ = rdb.Close(); server.Close() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
