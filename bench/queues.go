package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// queue is a peer that delivers messages from Redis to a handler. Neither asynq nor watermill-redisstream can take
// several messages at once, so the number of concurrent handlers is the only setting to tune.
type queue struct {
	row, peer, about string
}

// handlers are the numbers of concurrent handlers that bestHandlers tries.
var handlers = []int{1, 4, 16, 64, 256}

// bestHandlers makes a short run with each number of handlers, and returns the number with the highest rate. It adds
// all rates to beside.
func bestHandlers(beside map[string]float64, rate func(handlers int) (float64, error)) (best int, err error) {
	highest := 0.0
	for _, n := range handlers {
		now, err := rate(n)
		if err != nil {
			return 0, fmt.Errorf("with %d handlers: %w", n, err)
		}
		if beside[fmt.Sprintf("the peer with %3d handlers, messages/s", n)] = now; now > highest {
			best, highest = n, now
		}
	}
	return best, nil
}

// queueRow compares Hongbao's grants with a peer's messages of the same text. Both go to a handler that does nothing.
// The row has no promise.
func queueRow(q queue) row {
	return row{q.row, func(ctx context.Context, o options) ([]Result, error) {
		r, err := newFixture(ctx)
		if err != nil {
			return nil, err
		}
		n, ofPeer, put := o.n(200_000), o.n(30_000), []float64{} // enough of each for a run that can be measured
		res := Result{
			Name: q.row, Unit: "messages/s", Beside: map[string]float64{},
			HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and a handler that does nothing. The "+
				"consumer has leases, retries out of order, dead letters, and a done bit for each grant; the handler gets "+
				"each grant at least once", n, shardCount),
		}
		peer := func(at, n int) (float64, error) {
			if err := r.rdb.FlushAll(ctx).Err(); err != nil {
				return 0, err
			}
			rate, more, err := runPeer(ctx, "-peer", q.peer, "-addr", r.server.Addr, "-callers", strconv.Itoa(at), "-n",
				strconv.Itoa(n))
			put = append(put, more...)
			return rate, err
		}
		best, err := bestHandlers(res.Beside, func(at int) (float64, error) { return peer(at, ofPeer/5) })
		if err == nil {
			err = res.inTurn(ctx, o.rounds, func(context.Context) (float64, error) { return peer(best, ofPeer) },
				func(ctx context.Context) (float64, error) { return r.noop(ctx, n) })
		}
		res.HowBaseline = fmt.Sprintf("%d messages of the same text by %s, on the same Redis; %d concurrent handlers, the best of "+
			"%v in a short run", ofPeer, q.about, best, handlers)
		res.Beside["the peer puts messages in, messages/s"] = median(put)
		return []Result{res}, errors.Join(err, r.close())
	}}
}

// noop measures the delivery of n events to a handler that does nothing.
func (r *fixture) noop(ctx context.Context, n int) (float64, error) {
	st, _, err := r.events(ctx, n)
	if err != nil {
		return 0, err
	}
	return r.consume(ctx, st, "noop", n, nothing)
}

var nothing = hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil })

// queueKafkaRow compares how the publisher and how watermill bring messages from Redis to Kafka.
func queueKafkaRow(ctx context.Context, o options) ([]Result, error) {
	b, err := newPublishBench(ctx, o.n(200_000))
	if err != nil {
		return nil, err
	}
	res := Result{
		Name: "peer_watermill_kafka", Unit: "messages/s", Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the publisher. The topic gets each "+
			"grant once, whichever process dies", b.n, shardCount),
	}
	ofPeer := o.n(20_000)
	peer := func(at, n int) (float64, error) {
		topic, err := b.topic(ctx)
		if err = errors.Join(err, b.fixture.rdb.FlushAll(ctx).Err()); err != nil {
			return 0, err
		}
		rate, _, err := runPeer(ctx, "-peer", "watermill-kafka", "-addr", b.fixture.server.Addr, "-kafka", b.broker.Addr,
			"-topic", topic, "-callers", strconv.Itoa(at), "-n", strconv.Itoa(n))
		return rate, err
	}
	best, err := bestHandlers(res.Beside, func(at int) (float64, error) { return peer(at, ofPeer/10) })
	if err == nil {
		err = res.inTurn(ctx, o.rounds, func(context.Context) (float64, error) { return peer(best, ofPeer) }, b.ours("none"))
	}
	res.HowBaseline = fmt.Sprintf("%d messages of the same text by watermill-redisstream, consumers of one group, and watermill-kafka, "+
		"acks=all. A worker that dies leaves copies in the topic; %d consumers, the best of %v in a short run", ofPeer, best, handlers)
	return []Result{res}, errors.Join(err, b.close())
}

// runPeer runs command peers, and returns the rates that it prints, the most important first.
func runPeer(ctx context.Context, args ...string) (rate float64, more []float64, err error) {
	bin, err := peers()
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", cmd, err)
	}
	var rates []float64
	for text := range strings.FieldsSeq(string(out)) {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("read what %s prints: %w", cmd, err)
		}
		rates = append(rates, rate)
	}
	if len(rates) == 0 {
		return 0, nil, fmt.Errorf("%s printed no rate", cmd)
	}
	return rates[0], rates[1:], nil
}
