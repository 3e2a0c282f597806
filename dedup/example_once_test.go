package dedup_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"runtime"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
)

// The first worker sends message m1 and is killed before it can report that. The second worker learns that the message
// is in doubt, and does not send it again. It asks the receiver, who has the message.
func ExampleOnce() {
	d := example.New()
	defer d.Close()
	once, err := dedup.NewOnce(dedup.OnceConfig{
		Deployment: d.Deployment, Name: "sms",
		Lease: 100 * time.Millisecond, // short for this example: a lease must be longer than any push
		Keep:  30 * 24 * time.Hour,
	})
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var arrived []string // at the receiver
	killed := make(chan struct{})
	go func() { // the first worker
		defer close(killed)
		_, err := once.Push(ctx, "m1", rand.Text(), func(context.Context) error {
			arrived = append(arrived, "m1")
			runtime.Goexit() // the worker ends here, as if its process was killed: Push does not return
			return nil
		})
		check(err)
	}()
	<-killed

	push := func() dedup.State { // the second worker
		state, err := once.Push(ctx, "m1", rand.Text(), func(context.Context) error {
			arrived = append(arrived, "m1")
			return nil
		})
		check(err)
		return state
	}
	state, again := push(), time.NewTicker(10*time.Millisecond)
	for ; state == dedup.InProgress; <-again.C { // while the lease lasts, the first worker may still be sending
		state = push()
	}
	fmt.Println("the second worker learns:", state)

	token := rand.Text()
	state, err = once.Retake(ctx, "m1", token)
	check(err)
	if state == dedup.Mine && slices.Contains(arrived, "m1") { // if the receiver had no m1, the worker would send it
		check(once.Complete(ctx, "m1", token))
	}
	fmt.Println("after it asked the receiver:", push())
	fmt.Println("arrived:", arrived)
	// Output:
	// the second worker learns: in_doubt
	// after it asked the receiver: done
	// arrived: [m1]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
