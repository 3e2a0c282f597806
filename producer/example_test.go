package producer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

// A program decides grabs with a Producer. ann repeats her grab with the same request id, as after a lost answer, and
// gets the same packet. No packet is left for carl.
func Example() {
	rdb, space, stop := loaded.Campaign(loaded.Rain("spring-rain", 2, 100))
	defer stop()
	const deployment = loaded.Deployment

	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = rdb, space, deployment
	p, err := producer.New(cfg) // use one per program: it batches the grabs of all goroutines
	check(err)

	ctx := context.Background()
	grab := func(user, requestID string) error {
		answer, err := p.Grab(ctx, &hongbao.Grab{Campaign: "spring-rain", User: user, RequestID: requestID})
		switch {
		case err != nil:
			return err // if its class is Unknown, repeat the grab with the same RequestID
		case !answer.Outcome.Final():
			fmt.Println(user, "is to ask again") // undecided: busy, frozen or refilling
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
	check(p.Close(ctx)) // waits for the calls in flight
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
