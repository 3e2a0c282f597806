package frontend_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/examples/frontend"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/subscriber"
)

// Three subscribers, each in its own group, read the same topic, which has one grant twice. The browser gets each grant
// once.
func Example() {
	d, grants := example.New(), example.NewTopic()
	defer d.Close()
	defer grants.Close()
	hub := &frontend.Hub{}
	page := httptest.NewServer(hub)
	defer page.Close()

	browser, hangUp := listen(page.URL)
	defer hangUp()
	ann := hongbao.Grant{Seq: 1, Campaign: "spring", Packet: 1, User: "ann", Amount: 888}
	bob := hongbao.Grant{Seq: 2, Campaign: "spring", Packet: 2, User: "bob", Amount: 888}
	cleo := hongbao.Grant{Seq: 3, Campaign: "spring", Packet: 3, User: "cleo", Amount: 888}
	grants.Publish(ann, bob, cleo, bob)

	ctx, stop := context.WithCancel(context.Background())
	var subscribers []*subscriber.Subscriber
	var wg sync.WaitGroup
	for _, region := range []string{"north", "south", "west"} {
		s := newSubscriber(region, d, grants, page.URL)
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

func newSubscriber(region string, d *example.Deployment, grants *example.Topic, page string) *subscriber.Subscriber {
	once, err := dedup.NewOnce(dedup.OnceConfig{Deployment: d.Deployment, Name: "frontend", Lease: time.Minute,
		Keep: 30 * 24 * time.Hour})
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
	cfg.Brokers, cfg.ClientID, cfg.Group, cfg.Deployment = grants.Brokers, "frontend-"+region, "frontend-"+region,
		grants.Deployment
	cfg.Topic, cfg.DeadLetters, cfg.Sink, cfg.Log = grants.Name, grants.DeadLetters, sink, zap.NewNop()
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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
