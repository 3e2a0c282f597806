package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// grant returns a message with the text of one of Hongbao's records.
func grant(i int) []byte {
	return fmt.Appendf(nil, `{"campaign":"bench-0","packet":%d,"user":"u%08d","amount":500,"shard":0,"seq":%d,"epoch":1,`+
		`"time":"2026-11-22T10:00:00.000Z","request_id":"r%05d"}`, i+1, i, i+1, i%100_000)
}

// fillers is how many goroutines add messages concurrently, whatever the number of handlers.
const fillers = 64

// each calls do for 0..n-1 from the given number of goroutines, and returns the rate.
func each(callers, n int, do func(caller, i int) error) (float64, error) {
	errs := make([]error, callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(w, i)
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(start).Seconds(), errors.Join(errs...)
}

type counter struct {
	left atomic.Int64
	all  chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) handled() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

// wait returns the rate since start.
func (c *counter) wait(n int, start time.Time) (float64, error) {
	late := time.NewTimer(5 * time.Minute)
	defer late.Stop()
	select {
	case <-c.all:
		return float64(n) / time.Since(start).Seconds(), nil
	case <-late.C:
		return 0, fmt.Errorf("%d of %d messages were not handled in five minutes", c.left.Load(), n)
	}
}

// asynqTasks enqueues tasks, then handles them by a handler that does nothing.
func asynqTasks(_ context.Context, j job) ([]float64, error) {
	opt := asynq.RedisClientOpt{Addr: j.addr, PoolSize: max(j.callers, fillers) + 10}
	client := asynq.NewClient(opt)
	in, err := each(fillers, j.n, func(_, i int) error {
		_, err := client.Enqueue(asynq.NewTask("grant", grant(i)))
		return err
	})
	if err = errors.Join(err, client.Close()); err != nil {
		return nil, err
	}
	c := newCounter(j.n)
	server := asynq.NewServer(opt, asynq.Config{Concurrency: j.callers, LogLevel: asynq.FatalLevel})
	start := time.Now()
	err = server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		c.handled()
		return nil
	}))
	if err != nil {
		return nil, err
	}
	out, err := c.wait(j.n, start)
	server.Shutdown()
	return []float64{out, in}, err
}

const stream = "grants"

// client returns a new client for each part, because watermill's publishers and subscribers close their client.
func client(j job) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: j.addr, PoolSize: 2*max(j.callers, fillers) + 10})
}

// fill publishes messages to a stream of Redis by watermill.
func fill(j job) (float64, error) {
	rdb := client(j)
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: rdb}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	rate, err := each(fillers, j.n, func(_, i int) error {
		return p.Publish(stream, message.NewMessage(watermill.NewUUID(), grant(i)))
	})
	return rate, errors.Join(err, p.Close())
}

// drain handles the messages of the stream by several consumers of one group. Each consumer takes the next message
// after acknowledging the last.
func drain(ctx context.Context, j job, handle func(m *message.Message) error) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rdb := client(j)
	c := newCounter(j.n)
	failed := make(chan error, j.callers)
	var wg sync.WaitGroup
	start := time.Now()
	var closing []func() error
	for range j.callers {
		s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: rdb, ConsumerGroup: "g", OldestId: "0",
			DisableIndefiniteInitialBlock: true}, watermill.NopLogger{})
		if err != nil {
			return 0, err
		}
		closing = append(closing, s.Close)
		messages, err := s.Subscribe(ctx, stream)
		if err != nil {
			return 0, err
		}
		wg.Go(func() {
			for m := range messages {
				if err := handle(m); err != nil {
					failed <- err
					return
				}
				m.Ack()
				c.handled()
			}
		})
	}
	rate, err := c.wait(j.n, start)
	stop()
	for _, end := range closing {
		if failed := end(); !errors.Is(failed, redis.ErrClosed) { // the first end has closed the shared client
			err = errors.Join(err, failed)
		}
	}
	wg.Wait()
	close(failed)
	for one := range failed {
		err = errors.Join(err, one)
	}
	return rate, err
}

// watermillRedis publishes messages to a stream, then delivers them to a handler that does nothing.
func watermillRedis(ctx context.Context, j job) ([]float64, error) {
	in, err := fill(j)
	if err != nil {
		return nil, err
	}
	out, err := drain(ctx, j, func(*message.Message) error { return nil })
	return []float64{out, in}, err
}

// watermillKafka publishes messages to a stream, then copies them to Kafka with acks=all.
func watermillKafka(ctx context.Context, j job) ([]float64, error) {
	in, err := fill(j)
	if err != nil {
		return nil, err
	}
	cfg := wkafka.DefaultSaramaSyncPublisherConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	p, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: []string{j.kafka}, Marshaler: wkafka.DefaultMarshaler{},
		OverwriteSaramaConfig: cfg}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	out, err := drain(ctx, j, func(m *message.Message) error { return p.Publish(j.topic, m.Copy()) })
	return []float64{out, in}, errors.Join(err, p.Close())
}
