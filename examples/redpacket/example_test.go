package redpacket_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/hongbao-project/hongbao/examples/redpacket"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/producer"
)

// Four users grab three packets, and one of the users grabs twice.
func Example() {
	d := example.Rain("rain", 3, 10)
	defer d.Close()
	cfg := producer.DefaultConfig()
	cfg.Deployment = d.Deployment
	p, err := producer.New(cfg)
	check(err)
	ctx, g := context.Background(), redpacket.Grabber{Producer: p, Campaign: "rain"}
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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
