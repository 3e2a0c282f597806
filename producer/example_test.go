package producer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

// Example shows a program that takes grabs. ann asks twice, like a client that lost the answer, and gets the same
// answer. No packet is left for carl.
func Example() {
	rdb, space, stop := loaded.Campaign(loaded.Rain("spring-rain", 2, 100))
	defer stop()
	const deployment = loaded.Deployment

	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = rdb, space, deployment
	p, err := producer.New(cfg) // one for the whole program; it collects the grabs of all goroutines
	check(err)

	ctx := context.Background()
	grab := func(user, requestID string) error {
		answer, err := p.Grab(ctx, &hongbao.Grab{Campaign: "spring-rain", User: user, RequestID: requestID})
		switch {
		case err != nil:
			return err // its class says whether it may have been granted: then the same RequestID gets the same answer
		case !answer.Outcome.Final():
			fmt.Println(user, "is to ask again") // busy, frozen, refilling: nothing was decided
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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
