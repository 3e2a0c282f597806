package producer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/producer"
)

// Two users grab, and the campaign has one packet. One user wins, and the other gets sold_out.
func Example_grab() {
	d := example.Rain("spring-rain", 1, 50) // an open campaign: 1 packet with 50 fen
	defer d.Close()

	cfg := producer.DefaultConfig()
	cfg.Deployment = d.Deployment
	p, err := producer.New(cfg) // use one for the whole program: it batches the grabs of all goroutines
	check(err)

	ctx := context.Background()
	for _, grab := range []hongbao.Grab{
		{Campaign: "spring-rain", User: "ann", RequestID: "r1"},
		{Campaign: "spring-rain", User: "bob", RequestID: "r2"},
	} {
		answer, err := p.Grab(ctx, &grab)
		check(err) // in a server: the class of err says whether to repeat the grab
		switch {
		case answer.Outcome == hongbao.OutcomeGranted:
			fmt.Println(grab.User, "won packet", answer.Receipts[0].Packet, "with", answer.Receipts[0].Amount, "fen")
		case answer.Outcome.Final():
			fmt.Println(grab.User, "got nothing:", answer.Outcome) // a refusal is a value, not an error
		default:
			fmt.Println(grab.User, "should ask again:", answer.Outcome) // busy, frozen or refilling: undecided
		}
	}
	check(p.Close(ctx)) // waits for the grabs in progress
	// Output:
	// ann won packet 1 with 50 fen
	// bob got nothing: sold_out
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
