// Command grab lets one user grab a packet: grab CAMPAIGN USER REQUEST-ID. README.md shows this file, and a test runs
// it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/producer"
)

func main() {
	d, err := deployment.Open(deployment.Config{ID: "hongbao", Space: hongbao.Space{Prefix: "hb", Shards: 1}, // as for `hongbao init`
		Redis: &redis.UniversalOptions{Addrs: []string{os.Getenv("HONGBAO_REDIS_ADDRS")}}})
	if err != nil {
		log.Fatal(err)
	}
	cfg := producer.DefaultConfig()
	cfg.Deployment = d
	p, err := producer.New(cfg) // all goroutines can share it
	if err != nil {
		log.Fatal(err)
	}
	answer, err := p.Grab(context.Background(), &hongbao.Grab{Campaign: os.Args[1], User: os.Args[2],
		RequestID: os.Args[3], Facts: map[string]string{"device": os.Args[2]}})
	switch {
	case err != nil: // class Unknown: the user may have won; repeat with the same request id to get the receipt
		log.Fatal(err)
	case answer.Outcome == hongbao.OutcomeGranted:
		fmt.Println("packet", answer.Receipts[0].Packet, "with", answer.Receipts[0].Amount, "fen")
	case !answer.Outcome.Final(): // busy, frozen, refilling: nothing was decided
		fmt.Println("ask again:", answer.Outcome)
	default: // a refusal is a value, not an error
		fmt.Println(answer.Outcome)
	}
}
