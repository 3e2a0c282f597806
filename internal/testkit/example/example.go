// Package example does for the examples of the public packages what an operator does for a program: it initializes a
// deployment, loads campaigns, and publishes grants to a topic. Examples have no testing.TB, so a failure panics. They
// use the servers of testkit, and under `go test -short` servers in this process.
package example

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

// id is the id of every deployment here.
const id = "example"

// Deployment is a deployment in Redis.
type Deployment struct {
	// Config says where the deployment is. In a program of yours, its ID and Space are from the operator's configuration.
	Config deployment.Config
	*deployment.Deployment

	store *store.Store
	proxy *proxy.Proxy
	stop  func() // stops a Redis in this process
}

// New initializes a deployment, as `hongbao init` does. The caller closes it.
func New() *Deployment {
	d := &Deployment{stop: func() {}}
	var addr string
	if shared, skip, err := testkit.SharedRedis(); skip {
		mini, err := miniredis.Run()
		check(err)
		addr, d.stop = mini.Addr(), mini.Close
	} else {
		check(err)
		addr = shared.Addr
	}
	var err error
	d.proxy, err = proxy.Start(addr)
	check(err)
	d.Config = deployment.Config{ID: id, Space: hongbao.Space{Prefix: name(), Shards: 1},
		Redis: &redis.UniversalOptions{Addrs: []string{d.proxy.Addr}}, Log: zap.NewNop()}
	d.Deployment, err = deployment.Open(d.Config)
	check(err)
	d.store = d.Store()
	check(d.store.Initialize(context.Background(), store.InitializeCall{Deployment: id}))
	return d
}

// Rain initializes a deployment with a campaign that is open, in which each packet has the same amount.
func Rain(id string, packets int64, amount hongbao.Amount) *Deployment {
	return Campaign(loaded.Rain(id, packets, hongbao.Amount(packets)*amount))
}

// Campaign initializes a deployment and loads a campaign, as `hongbao campaign load` does. If there are codes, there
// must be one for each packet.
func Campaign(c hongbao.Campaign, codes ...string) *Deployment {
	d := New()
	check(loaded.Load(context.Background(), d.store, c, codes))
	return d
}

// Close closes the deployment, and stops a Redis that runs in this process.
func (d *Deployment) Close() {
	check(d.Deployment.Close())
	check(d.proxy.Close())
	d.stop()
}

// Win grabs a packet for each user, in one call.
func (d *Deployment) Win(campaign string, users ...string) {
	call := &store.GrabCall{MaxBacklog: 1e6}
	for _, user := range users {
		call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: campaign, User: user})
	}
	answers, err := d.store.Home(campaign).Grab(context.Background(), call, nil)
	check(err)
	for i, a := range answers {
		if a.Outcome != hongbao.OutcomeGranted {
			panic(fmt.Sprintf("the grab of %s ended as %s", users[i], a.Outcome))
		}
	}
}

// LoseAnswers drops the answers to grabs of the campaign on their way from Redis, until the caller calls heal. Redis has
// decided these grabs. LoseAnswers calls lost after each dropped answer.
func (d *Deployment) LoseAnswers(campaign string, lost func()) (heal func()) {
	// A producer's first call asks for the campaign's revision, and decides nothing. All others name it.
	key := d.store.Home(campaign).Keys.Campaign(campaign)
	revision, err := d.store.Redis().HGet(context.Background(), key, "revision").Bytes()
	check(err)
	var healed atomic.Bool
	decides := func(request []byte) bool { return !healed.Load() && bytes.Contains(request, revision) }
	d.proxy.SwallowWholeAnswers(math.MaxInt, decides, func([]byte) bool { lost(); return true })
	return func() { healed.Store(true) }
}

// Topic is a topic of grants, and a topic for the dead letters of a subscriber.
type Topic struct {
	Brokers                       []string
	Name, DeadLetters, Deployment string

	stop func() // stops a broker in this process
}

// NewTopic creates the topics, with one partition each. The caller closes them.
func NewTopic() *Topic {
	t := &Topic{Name: name(), DeadLetters: name(), Deployment: id, stop: func() {}}
	shared, skip, err := testkit.SharedKafka()
	if skip {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, t.Name, t.DeadLetters))
		check(err)
		t.Brokers, t.stop = cluster.ListenAddrs(), cluster.Close
		return t
	}
	check(err)
	t.Brokers = []string{shared.Addr}
	for _, topic := range []string{t.Name, t.DeadLetters} {
		check(shared.CreateTopic(context.Background(), topic, 1, nil))
	}
	return t
}

// Close stops a broker that runs in this process.
func (t *Topic) Close() { t.stop() }

// Publish writes a record for each grant, like `hongbao work`, but without its protection against copies.
func (t *Topic) Publish(grants ...hongbao.Grant) {
	client, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...), kgo.DefaultProduceTopic(t.Name))
	check(err)
	defer client.Close()
	for i := range grants {
		g := &grants[i]
		g.Epoch, g.Time = 1, time.Now()
		value, headers := testkit.Record(id, g)
		r := &kgo.Record{Key: []byte(g.User), Value: value}
		for _, h := range headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
		check(client.ProduceSync(context.Background(), r).FirstErr())
	}
}

// name returns a new name for a key prefix or a topic.
func name() string { return "example-" + strings.ToLower(rand.Text()[:10]) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
