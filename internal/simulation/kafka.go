package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// The kinds of deeds of Kafka's side: those of subscribers, and those of brokers.
const (
	SubscriberKill  = "subscriber_kill"  // a subscriber dies inside a transaction, and another one takes its place
	SubscriberStop  = "subscriber_stop"  // a subscriber ends in order, and another one takes its place
	SubscriberPause = "subscriber_pause" // a subscriber stands still
	SubscriberPart  = "subscriber_part"  // a subscriber and Kafka do not reach each other
	RowsAway        = "rows_away"        // no subscriber reaches its database

	LeadersMove     = "leaders_move"     // each partition gets another leader, and another one later
	CoordinatorMove = "coordinator_move" // the group gets another coordinator
	BrokerDown      = "broker_down"      // a broker is away, and the others take its partitions and groups
	TopicAgain      = "topic_again"      // somebody deletes the topic, and makes it again
)

// KafkaDeeds has every deed of Kafka's side.
var KafkaDeeds = []string{SubscriberKill, SubscriberStop, SubscriberPause, SubscriberPart, RowsAway, LeadersMove,
	CoordinatorMove, BrokerDown, TopicAgain}

// ofBrokers are the deeds that need several brokers.
var ofBrokers = []string{LeadersMove, CoordinatorMove, BrokerDown}

// kafkaStream is the second number of the generator of Kafka's side. Its own generator keeps the other draws of a seed.
const kafkaStream = 1 << 32

// mostKafkaDeeds is how many deeds of Kafka's side a history has at most.
const mostKafkaDeeds = 4

// mostSubscribers is 1, because kfake begins a group's wait again with each member that joins, which Kafka does not. So
// two members that join out of step would wait forever.
const mostSubscribers = 1

// drawKafka draws subscribers for a third of the histories, and deeds of Kafka's side for these and some others. If on
// has no other deeds, each history has subscribers.
func (p *Plan) drawKafka(on []string) {
	r := rand.New(rand.NewPCG(p.Seed, kafkaStream))
	var kinds []string
	for _, what := range on {
		if slices.Contains(KafkaDeeds, what) {
			kinds = append(kinds, what)
		}
	}
	if len(kinds) == 0 {
		return
	}
	most := mostKafkaDeeds
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		p.Subscribers = mostSubscribers
	case 4: // without subscribers
		kinds = slices.DeleteFunc(kinds, func(what string) bool { return !slices.Contains(ofBrokers, what) })
		most = 2
	default:
		if len(kinds) < len(on) || len(on) == 0 {
			return
		}
		p.Subscribers = mostSubscribers
	}
	if len(kinds) == 0 {
		return
	}
	for range r.IntN(most + 1) {
		d := Deed{At: time.Duration(r.Int64N(int64(p.Faulty))), What: kinds[r.IntN(len(kinds))],
			For: 100*time.Millisecond + time.Duration(r.Int64N(int64(p.Faulty)))}
		switch d.What {
		case SubscriberKill, SubscriberStop, SubscriberPause, SubscriberPart:
			d.Who = fmt.Sprintf("s%d", r.IntN(p.Subscribers))
		case LeadersMove, BrokerDown:
			d.Who = fmt.Sprintf("b%d", r.IntN(kafkaBrokers))
		}
		p.Deeds = append(p.Deeds, d)
	}
	if p.Subscribers > 0 && slices.Contains(kinds, TopicAgain) && r.IntN(4) == 0 {
		p.Deeds = append(p.Deeds, Deed{At: time.Duration(r.Int64N(int64(p.Faulty))), What: TopicAgain,
			For: time.Duration(r.Int64N(int64(2 * time.Second)))})
	}
	if p.has(TopicAgain) { // kfake would make it with fewer replicas than the topic needs
		p.Deeds = slices.DeleteFunc(p.Deeds, func(d Deed) bool { return d.What == BrokerDown })
	}
	p.sortDeeds()
}

// kafkaBrokers is how many brokers Kafka has in histories in which a deed needs several.
const kafkaBrokers = 3

// brokers returns the brokers' addresses.
func (p *Plan) brokers() []string {
	if !slices.ContainsFunc(ofBrokers, p.has) {
		return []string{kafkaAddr}
	}
	var all []string
	for i := range kafkaBrokers {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", kafkaPort+i))
	}
	return all
}

const kafkaPort = 9092

// openKafka starts the brokers.
func (w *world) openKafka(settings map[string]string) (err error) {
	opts := []kfake.Opt{kfake.BrokerConfigs(settings), kfake.SeedTopics(int32(w.plan.Shards), kafkaTopic),
		kfake.GroupMinSessionTimeout(time.Second)}
	if w.plan.Subscribers > 0 {
		opts = append(opts, kfake.SeedTopics(1, deadTopic))
	}
	var ports []int
	for i := range w.plan.brokers() {
		ports = append(ports, kafkaPort+i)
	}
	if len(ports) > 1 {
		settings["min.insync.replicas"] = "2"
	}
	listen := func(_, addr string) (net.Listener, error) {
		at, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			return nil, err
		}
		l := virtual.NewListener(at.Port)
		w.net.Serve(addr, "kafka", virtual.Kafka, l.Give)
		return l, nil
	}
	w.kafka, err = kfake.NewCluster(append(opts, kfake.NumBrokers(len(ports)), kfake.Ports(ports...), kfake.ListenFn(listen))...)
	if err != nil {
		return fmt.Errorf("start kfake: %w", err)
	}
	return nil
}

// kafkaDown takes all brokers down or up.
func (w *world) kafkaDown(down bool) {
	for _, addr := range w.plan.brokers() {
		w.net.Down(addr, down)
	}
}

// toKafka carries out a deed of Kafka's side.
func (w *world) toKafka(ctx context.Context, d *Deed) error {
	switch d.What {
	case SubscriberKill:
		return w.killSubscriber(ctx, d)
	case SubscriberStop:
		return w.toProcess(ctx, &Deed{What: Stop, Who: d.Who})
	case SubscriberPause:
		return w.toProcess(ctx, &Deed{What: Pause, Who: d.Who, For: d.For})
	case SubscriberPart:
		return w.toProcess(ctx, &Deed{What: PartKafka, Who: d.Who, For: d.For})
	case RowsAway:
		w.rows.away(d.For)
		return virtual.Sleep(ctx, d.For)
	case LeadersMove:
		w.lead(numberOf(d.Who))
		err := virtual.Sleep(ctx, d.For)
		w.lead(numberOf(d.Who) + 1)
		return err
	case CoordinatorMove:
		w.kafka.RehashCoordinators()
	case BrokerDown:
		return w.brokerDown(ctx, d)
	case TopicAgain:
		return w.topicAgain(ctx, d)
	}
	return nil
}

// killSubscriber kills a subscriber inside a transaction, if there is one within the time of the deed.
func (w *world) killSubscriber(ctx context.Context, d *Deed) error {
	_, p := w.slots[d.Who].get()
	if p != nil && w.rows.dieInside(ctx, p, d.For, p.Kill) {
		w.cover.note("subscriber", "died before its COMMIT")
	}
	return w.toProcess(ctx, &Deed{What: Kill, Who: d.Who})
}

// numberOf returns the number of "b1".
func numberOf(who string) int { return int(who[len(who)-1] - '0') }

// lead gives each partition a leader, from the n-th broker on.
func (w *world) lead(n int) {
	for i := range w.plan.Shards {
		node := int32((n + i) % kafkaBrokers)
		if err := w.kafka.MoveTopicPartition(kafkaTopic, int32(i), node); err != nil {
			w.note("partition %d stays: %v", i, err) // the broker is down
		}
	}
}

// brokerDown removes a broker, and adds it again. The library draws the leaders then, and this sets them again.
func (w *world) brokerDown(ctx context.Context, d *Deed) error {
	n := numberOf(d.Who)
	addr := w.plan.brokers()[n]
	if err := w.kafka.RemoveNode(int32(n)); err != nil {
		w.note("%s is down already: %v", d.Who, err)
		return nil
	}
	w.net.Down(addr, true)
	defer w.net.Down(addr, false)
	w.lead(n + 1)
	err := virtual.Sleep(ctx, d.For)
	if _, _, failed := w.kafka.AddNode(int32(n), kafkaPort+n); failed != nil {
		return failed
	}
	w.lead(n)
	return err
}
