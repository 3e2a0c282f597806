package consumer_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
)

// points is a Handler that books the amount of each grant as points. A grant may come more than once, so points keeps
// the ids of the booked grants. A real program stores id and points in one transaction of its database.
type points struct {
	mu     sync.Mutex
	booked map[string]bool
	of     map[string]hongbao.Amount // by user
	came   map[string]int            // how often a user's grant came
}

func (p *points) Handle(_ context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	p.mu.Lock() // each shard may have a call
	defer p.mu.Unlock()
	errs := make([]error, len(grants))
	for i, g := range grants {
		p.came[g.User]++
		id := fmt.Sprintf("%s/%d", g.Campaign, g.Packet)
		switch {
		case g.User == "bob" && p.came["bob"] == 1: // a fault, for this example: nothing is booked
			errs[i] = hongbao.Errorf(hongbao.ClassTransient, "no connection for grant %s", id)
		case !p.booked[id]:
			p.booked[id] = true
			p.of[g.User] += g.Amount
		}
	}
	return errs
}

// A consumer group with its own Handler books points for three grants. The Handler fails once for bob's grant, so this
// grant comes again. Each grant has its effect once.
func Example_handler() {
	d := example.Rain("spring-rain", 3, 50)
	defer d.Close()
	d.Win("spring-rain", "ann", "bob", "cleo")

	p := &points{booked: map[string]bool{}, of: map[string]hongbao.Amount{}, came: map[string]int{}}
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler = d.Deployment, "points", p
	cfg.Block, cfg.Poll, cfg.Backoff = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	c, err := consumer.New(cfg)
	check(err)

	ctx, stop := context.WithTimeout(context.Background(), time.Minute) // a real program runs until SIGTERM
	ended, tick := make(chan error, 1), time.NewTicker(time.Millisecond)
	go func() { ended <- c.Run(ctx) }()
	for c.Stats().Done < 3 && ctx.Err() == nil {
		<-tick.C
	}
	stop()
	check(<-ended)
	for _, user := range []string{"ann", "bob", "cleo"} {
		fmt.Println(user, "has", p.of[user], "points; deliveries of the grant:", p.came[user])
	}
	// Output:
	// ann has 50 points; deliveries of the grant: 1
	// bob has 50 points; deliveries of the grant: 2
	// cleo has 50 points; deliveries of the grant: 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
