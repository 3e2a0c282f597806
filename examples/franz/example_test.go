package franz_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/examples/franz"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/topic"
)

// A program with franz-go prints the grants of a topic.
func Example() {
	grants := example.NewTopic()
	defer grants.Close()
	grants.Publish(hongbao.Grant{Seq: 1, Campaign: "spring", Packet: 1, User: "ann", Amount: 100},
		hongbao.Grant{Seq: 2, Campaign: "spring", Packet: 2, User: "bob", Amount: 250})

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	n := 0
	source := "/hongbao/" + grants.Deployment
	err := franz.ReadGrants(ctx, grants.Brokers, grants.Name, source, func(e topic.Event) bool {
		fmt.Printf("%s got %d in %s, packet %d\n", e.Grant.User, e.Grant.Amount, e.Grant.Campaign, e.Grant.Packet)
		n++
		return n < 2
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// ann got 100 in spring, packet 1
	// bob got 250 in spring, packet 2
}
