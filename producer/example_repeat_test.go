package producer_test

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/producer"
)

// Redis grants ann a packet, its answer is lost, and ann's connection breaks. The error has class Unknown: she may have
// won. She repeats the grab with the same request id and gets her receipt. Each further repeat returns the same
// receipt, and takes no second packet.
func Example_repeat() {
	d := example.Rain("spring-rain", 1, 50) // an open campaign: 1 packet with 50 fen
	defer d.Close()
	cfg := producer.DefaultConfig()
	cfg.Deployment = d.Deployment
	p, err := producer.New(cfg)
	check(err)

	// ann's client draws the request id once, and sends it with each repeat.
	grab := hongbao.Grab{Campaign: "spring-rain", User: "ann", RequestID: "r1"}
	request, breaks := context.WithCancel(context.Background())
	heal := d.LoseAnswers("spring-rain", breaks) // a fault, for this example
	_, err = p.Grab(request, &grab)
	fmt.Println("first try:", hongbao.ClassOf(err))
	heal()

	ctx := context.Background()
	repeat, err := p.Grab(ctx, &grab)
	check(err)
	fmt.Println("repeat:", repeat.Outcome, "packet", repeat.Receipts[0].Packet)
	again, err := p.Grab(ctx, &grab)
	check(err)
	fmt.Println("repeat:", again.Outcome, "packet", again.Receipts[0].Packet)
	fmt.Println("the same receipt:", again.Receipts[0] == repeat.Receipts[0])
	check(p.Close(ctx))
	// Output:
	// first try: unknown
	// repeat: granted packet 1
	// repeat: granted packet 1
	// the same receipt: true
}
