package frontend_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/examples/frontend"
	"github.com/hongbao-project/hongbao/subscriber"
)

// Three subscribers, each in its own group, read the same topic, which has one grant twice. The browser gets each grant
// once.
func Example() {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "hongbao.grants", "frontend.dead"))
	check(err)
	defer kafka.Close()
	mini, err := miniredis.Run()
	check(err)
	defer mini.Close()
	hub := &frontend.Hub{}
	page := httptest.NewServer(hub)
	defer page.Close()

	browser, hangUp := listen(page.URL)
	defer hangUp()
	for _, g := range []struct {
		seq  int64
		user string
	}{{1, "ann"}, {2, "bob"}, {3, "cleo"}, {2, "bob"}} {
		publish(kafka.ListenAddrs()[0], g.seq, g.user)
	}

	ctx, stop := context.WithCancel(context.Background())
	var subscribers []*subscriber.Subscriber
	var wg sync.WaitGroup
	for _, region := range []string{"north", "south", "west"} {
		s := newSubscriber(region, kafka.ListenAddrs()[0], mini.Addr(), page.URL)
		subscribers = append(subscribers, s)
		wg.Go(func() { check(s.Run(ctx)) })
	}
	for range 3 {
		fmt.Println(<-browser)
	}
	tick := time.NewTicker(time.Millisecond)
	for handled := int64(0); handled < 12; <-tick.C { // each subscriber reads to the end of the topic
		handled = 0
		for _, s := range subscribers {
			n := s.Stats()
			handled += n.Done + n.Repeated
		}
	}
	stop()
	wg.Wait()
	fmt.Println("three subscribers read 12 records and notified the front end", hub.Received(), "times")
	// Output:
	// {"amount":888,"campaign":"spring","user":"ann"}
	// {"amount":888,"campaign":"spring","user":"bob"}
	// {"amount":888,"campaign":"spring","user":"cleo"}
	// three subscribers read 12 records and notified the front end 3 times
}

func newSubscriber(region, kafka, rediss, page string) *subscriber.Subscriber {
	once, err := dedup.NewOnce(dedup.OnceConfig{
		Redis: redis.NewClient(&redis.Options{Addr: rediss}), Space: hongbao.Space{Prefix: "frontend", Shards: 1},
		Name: "frontend", Lease: time.Minute, Keep: 30 * 24 * time.Hour,
	})
	check(err)
	client := &http.Client{Timeout: 5 * time.Second}
	sink, err := subscriber.NewFuncSink(subscriber.FuncSinkConfig{
		Timeout: 10 * time.Second,
		Effect: frontend.NotifyOnce(once, func(ctx context.Context, id string, message []byte) error {
			return frontend.Post(ctx, client, page, id, message)
		}),
	})
	check(err)
	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Topic, cfg.DeadLetters = []string{kafka}, "frontend-"+region, "hongbao.grants",
		"frontend.dead"
	cfg.Group, cfg.Deployment, cfg.Sink, cfg.Log = "frontend-"+region, "shop", sink, zap.NewNop()
	s, err := subscriber.New(cfg)
	check(err)
	return s
}

// listen connects to the front end, and returns the data of each server-sent event.
func listen(url string) (<-chan string, func()) {
	ctx, hangUp := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	check(err)
	res, err := http.DefaultClient.Do(req) //nolint:bodyclose // the goroutine closes it
	check(err)
	out := make(chan string, 100)
	go func() {
		defer res.Body.Close()
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
				out <- data
			}
		}
	}()
	return out, hangUp
}

// publish writes a grant to the topic as package publish does, but without its safeguards.
func publish(addr string, seq int64, user string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("hongbao.grants"))
	check(err)
	defer client.Close()
	n, at := strconv.FormatInt(seq, 10), "2026-11-21T08:00:00.123Z"
	r := &kgo.Record{Key: []byte(user), Value: []byte(`{"campaign":"spring","packet":` + n + `,"user":"` + user + `","amount":888,"shard":0,"seq":` + n +
		`,"epoch":1,"time":"` + at + `"}`)}
	for _, h := range [][2]string{
		{"ce_specversion", "1.0"}, {"ce_source", "/hongbao/shop"}, {"ce_type", "hongbao.grant.v1"},
		{"content-type", "application/json"},
		{"ce_id", "0-" + n}, {"ce_time", at}, {"shard", "0"}, {"seq", n}, {"epoch", "1"},
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	check(client.ProduceSync(context.Background(), r).FirstErr())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
