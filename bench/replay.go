package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
)

// replayRow compares a replay to a new topic with the consumer and publisher that deliver the same events first.
func replayRow(ctx context.Context, o options) ([]Result, error) {
	b, err := newPublishBench(ctx, o.n(200_000))
	if err != nil {
		return nil, err
	}
	res := Result{
		Name: "replay", Unit: "grants/s", Want: 0.8,
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards by a replay to a new topic: the replay reads the stream again, "+
			"and has its own done bits, claims and stored batches",
			b.n, shardCount),
		HowBaseline: "the same grants through package consumer and the publisher, as in publish_kafka",
	}
	err = res.inTurn(ctx, o.rounds, b.ours("none"), b.replay)
	return []Result{res}, errors.Join(err, b.close())
}

func (b *publishBench) replay(ctx context.Context) (float64, error) {
	st, topic, err := b.fresh(ctx)
	if err != nil {
		return 0, err
	}
	name := strconv.Itoa(b.runs)
	p, err := b.publisher(st, topic, replay.DoneSink(name), "none",
		&replay.Entries{Store: st})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	r, err := replay.New(replay.Config{
		Store: st, Name: name, Target: "topic:" + topic, DoneSink: replay.DoneSink(name),
		Marks:    true,
		Options:  delivery.Options{Handler: p, BatchGrants: batch, Patience: time.Minute},
		Parallel: shardCount,
	})
	if err != nil {
		return 0, err
	}
	report, err := r.Run(ctx, replay.Options{})
	if err == nil && (!report.Finished || report.Delivered != int64(b.n)) {
		err = fmt.Errorf("the replay did not deliver each of %d grants exactly once: %+v", b.n, report)
	}
	if err != nil {
		return 0, err
	}
	return float64(b.n) / report.Seconds, nil
}

// publisher returns a publisher to a topic that uses the claims of a sink.
func (b *publishBench) publisher(st *store.Store, topic, sink, compression string,
	entries publish.Entries) (*publish.Publisher, error) {
	claims, err := st.Claims(store.ClaimsConfig{Sink: sink, Owner: "bench", Lease: 30 * time.Second, TakeLive: true})
	if err != nil {
		return nil, err
	}
	return publish.New(b.publishing(topic, compression), claims, entries)
}

func (b *publishBench) publishing(topic, compression string) publish.Config {
	return publish.Config{
		Brokers: []string{b.broker.Addr}, ClientID: "bench", Topic: topic, Partitions: partitions, Deployment: "bench",
		Worker:      "bench",
		BatchGrants: batch, BatchBytes: 1_000_000, Compression: compression,
		DialTimeout: 5 * time.Second, RequestTimeout: 20 * time.Second, IdleTimeout: time.Minute,
		MetadataTTL: 10 * time.Second, AttemptTime: 10 * time.Second, MaxClaimAge: 20 * time.Second,
		ProducerExpiration: 24 * time.Hour,
		FetchBytes:         1 << 20, Campaigns: inYuan{},
	}
}

// inYuan gives every campaign the same currency. A real publisher remembers the currency after its first look-up.
type inYuan struct{}

func (inYuan) Terms(context.Context, int, string) (cloudevent.Facts, bool, error) {
	return cloudevent.Facts{Currency: "CNY"}, true, nil
}

func (inYuan) Codes(_ context.Context, _ int, _ string, packets []int64) ([]string, error) {
	return make([]string, len(packets)), nil
}
