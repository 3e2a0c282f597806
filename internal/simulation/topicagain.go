package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// topicAgain deletes the topic, and makes it again with the same settings.
func (w *world) topicAgain(ctx context.Context, d *Deed) error {
	if err := w.kafka.DeleteTopic(kafkaTopic); err != nil {
		w.note("the topic is deleted already: %v", err)
		return nil
	}
	err := virtual.Sleep(ctx, d.For)
	return errors.Join(err, w.kafka.CreateTopic(kafkaTopic, int32(w.plan.Shards), nil))
}

// refill does what docs/kafka.md says under "When the topic went back": `hongbao audit` names what the topic lacks, and
// `hongbao replay --to kafka --missing` publishes it. A batch that a worker sent to the old topic may count as
// published only later, so the person looks again.
func (w *world) refill(ctx context.Context) error {
	if !w.plan.has(TopicAgain) {
		return nil
	}
	for n, end := 0, time.Now().Add(settleTime); ; n++ {
		report, err := w.auditOnce(ctx)
		if err != nil {
			return err
		}
		missing := report.Found[audit.MissingInTopic]
		w.note("hongbao audit: the topic lacks %d events", missing)
		if missing == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d replays did not fill the topic: %+v", n, report.Found)
		}
		w.cover.note("person", "hongbao replay --to kafka --missing")
		if err := w.persist(ctx, "hongbao replay --to kafka --missing", "", func(ctx context.Context, a *app.App) error {
			report, err := deliveries.Of(a).Replay(ctx, deliveries.Replay{Name: fmt.Sprintf("again-%d", n), To: "kafka", Missing: true})
			if err == nil && !report.Finished {
				err = fmt.Errorf("the replay did not finish: %+v", report)
			}
			return err
		}); err != nil {
			return err
		}
	}
}

// held keeps the subscribers' places empty while a person sets the offsets of the group.
type held struct {
	asked  bool // a subscriber's Run has ended and says that a person must set the offsets
	closed bool
	alive  int
}

// enter waits until a subscriber may begin.
func (w *world) enter(ctx context.Context) error {
	for {
		w.mu.Lock()
		closed := w.held.closed
		if !closed {
			w.held.alive++
		}
		w.mu.Unlock()
		if !closed {
			return nil
		}
		if err := virtual.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (w *world) leave(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held.alive--
	w.held.asked = w.held.asked || broken
}

// resetter does what the error of Run says, until ctx ends: a person stops every member, and sets the group's offsets
// to the earliest ones. NewSQL drops what it has seen.
func (w *world) resetter(ctx context.Context) {
	for virtual.Sleep(ctx, thinking) == nil {
		w.mu.Lock()
		asked := w.held.asked
		w.held.closed = asked
		w.mu.Unlock()
		if !asked {
			continue
		}
		w.cover.note("person", "kafka-consumer-groups.sh --reset-offsets")
		for virtual.Sleep(ctx, 100*time.Millisecond) == nil {
			w.stopSubscribers()
			w.mu.Lock()
			alive := w.held.alive
			w.mu.Unlock()
			if alive > 0 {
				continue
			}
			err := w.toEarliest(ctx)
			w.note("kafka-consumer-groups.sh --reset-offsets --to-earliest: %v", err)
			if err == nil {
				break
			}
			_ = virtual.Sleep(ctx, time.Second)
		}
		w.mu.Lock()
		w.held = held{}
		w.mu.Unlock()
	}
}

func (w *world) stopSubscribers() {
	for i := range w.plan.Subscribers {
		s := w.slots[fmt.Sprintf("s%d", i)]
		if _, p := s.get(); p != nil && len(s.ended) == 0 {
			s.ended <- Stop
		}
	}
}

// toEarliest sets the offsets of the subscribers' group, as kafka-consumer-groups.sh does. It fails while the group has
// members.
func (w *world) toEarliest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.plan.brokers()...), kgo.Dialer(w.net.NewProc("person").Dial),
		kgo.MaxVersions(kversion.V3_0_0())) // later ones name topics by id
	if err != nil {
		return err
	}
	defer client.Close()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group = subscriberGroup
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = kafkaTopic
	for i := range w.plan.Shards {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition = int32(i)
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	res, err := r.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for i := range res.Topics {
		for _, p := range res.Topics[i].Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}
