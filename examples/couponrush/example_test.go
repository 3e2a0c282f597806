package couponrush_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/examples/couponrush"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/producer"
)

// There are four coupons, with limits of three per user and two per user and day. One grab is repeated with its request
// id, as after a lost answer.
func Example() {
	now := time.Now().Truncate(time.Millisecond)
	limits := couponrush.Limits{Max: 4, UserMax: 3, UserPerDayMax: 2}
	c := couponrush.Spec("rush", limits, now.Add(-time.Hour), now.Add(time.Hour), noonZone(now))
	d := example.Campaign(c, "SPRING-4711-KXQA", "SPRING-0815-MMNT", "SPRING-2718-ZWEB", "SPRING-3141-PYRD")
	defer d.Close()

	cfg := producer.DefaultConfig()
	cfg.Deployment = d.Deployment
	p, err := producer.New(cfg)
	check(err)
	ctx, r := context.Background(), couponrush.Rush{Producer: p, Campaign: "rush"}
	for _, g := range [][2]string{{"ann", "a1"}, {"ann", "a2"}, {"ann", "a2"}, {"ann", "a3"}, {"bob", "b1"},
		{"cleo", "c1"}, {"dora", "d1"}} {
		code, coupon, err := r.Grab(ctx, g[0], g[1])
		check(err)
		fmt.Println(strings.TrimSpace(fmt.Sprintf("%-4s %s: %d %s", g[0], g[1], code, coupon)))
	}
	check(p.Close(ctx))
	// Output:
	// ann  a1: 0 SPRING-4711-KXQA
	// ann  a2: 0 SPRING-0815-MMNT
	// ann  a2: 0 SPRING-0815-MMNT
	// ann  a3: 1
	// bob  b1: 0 SPRING-2718-ZWEB
	// cleo c1: 0 SPRING-3141-PYRD
	// dora d1: 3
}

// noonZone returns a time zone in which it is about noon, so that no midnight passes while the example runs.
func noonZone(now time.Time) string {
	if ahead := 12 - now.UTC().Hour(); ahead >= 0 {
		return fmt.Sprintf("Etc/GMT-%d", ahead) // in POSIX names, minus means east of UTC
	}
	return fmt.Sprintf("Etc/GMT+%d", now.UTC().Hour()-12)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
