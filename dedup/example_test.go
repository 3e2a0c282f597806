package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
)

// A message is pushed once. If it is unknown whether the message has arrived, Once does not push it again. A caller
// that can ask the receiver calls Retake.
func ExampleOnce() {
	ctx := context.Background()
	server, err := miniredis.Run()
	check(err)
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	once, err := dedup.NewOnce(dedup.OnceConfig{
		Redis: rdb, Space: hongbao.Space{Prefix: "app", Shards: 1},
		Name: "sms", Lease: time.Minute, Keep: 30 * 24 * time.Hour,
	})
	check(err)

	var arrived []string
	push := func(id, token string, fails error) {
		state, err := once.Push(ctx, id, token, func(context.Context) error {
			if fails == nil {
				arrived = append(arrived, id)
			}
			return fails
		})
		fmt.Println(id, state, err)
	}
	push("m1", "a", nil)
	push("m1", "b", nil)
	push("m2", "c", errors.New("the line broke"))
	server.SetTime(time.Now().Add(2 * time.Minute)) // the lease of m2 is over
	push("m2", "d", nil)

	state, err := once.Retake(ctx, "m2", "e")
	check(err)
	fmt.Println("m2", state, "retaken")
	if state == dedup.Mine {
		if !slices.Contains(arrived, "m2") { // ask the receiver
			arrived = append(arrived, "m2")
		}
		check(once.Complete(ctx, "m2", "e"))
	}
	push("m2", "f", nil)
	fmt.Println("arrived:", arrived)

	// Output:
	// m1 done <nil>
	// m1 done <nil>
	// m2 in_doubt push message "m2": the line broke
	// m2 in_doubt <nil>
	// m2 mine retaken
	// m2 done <nil>
	// arrived: [m1 m2]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
