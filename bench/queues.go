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

// queue is a peer that brings messages from Redis to a handler.
type queue struct {
	row, peer, about string
	callers          int // handlers at once: 256 and 64 are a guess, not tuned
}

// queueRow compares grants with a peer's messages of the same text, both brought to a handler that does nothing. It
// promises nothing.
func queueRow(q queue) row {
	return row{q.row, func(ctx context.Context, o options) ([]Result, error) {
		r, err := newFixture(ctx)
		if err != nil {
			return nil, err
		}
		n, put := o.n(50_000), []float64{}
		res := Result{
			Name: q.row, Unit: "messages/s", Beside: map[string]float64{},
			HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and a handler that does "+
				"nothing: leases, retries without a place in the line, dead letters, done bits for each grant; at least once to "+
				"the handler", n, shardCount),
			HowBaseline: fmt.Sprintf("%d messages of the same text by %s, %d at once, on the same Redis", n, q.about,
				q.callers),
		}
		err = res.inTurn(ctx, o.rounds, func(ctx context.Context) (float64, error) {
			if err := r.rdb.FlushAll(ctx).Err(); err != nil {
				return 0, err
			}
			rate, more, err := runPeer(ctx, "-peer", q.peer, "-addr", r.server.Addr, "-callers", strconv.Itoa(q.callers), "-n",
				strconv.Itoa(n))
			put = append(put, more...)
			return rate, err
		}, func(ctx context.Context) (float64, error) {
			layout, _, err := r.events(ctx, n)
			if err != nil {
				return 0, err
			}
			return r.consume(ctx, layout, "noop", n,
				hongbao.HandlerFunc(func(context.Context, []hongbao.Grant) []error { return nil }))
		})
		res.Beside["the peer puts messages in, messages/s"] = median(put)
		return []Result{res}, errors.Join(err, r.close())
	}}
}

// queueKafkaRow compares Redis -> Kafka by the publisher with watermill's stream and its publisher.
func queueKafkaRow(ctx context.Context, o options) ([]Result, error) {
	b, err := newPublishBench(ctx, o.n(50_000))
	if err != nil {
		return nil, err
	}
	res := Result{
		Name: "peer_watermill_kafka", Unit: "messages/s",
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the publisher: one copy "+
			"of each in the topic, whatever dies", b.n, shardCount),
		HowBaseline: fmt.Sprintf("%d messages of the same text by watermill-redisstream, 64 consumers of a group, and "+
			"watermill-kafka, acks=all: at least once, so a worker that dies leaves copies", b.n),
	}
	err = res.inTurn(ctx, o.rounds, func(ctx context.Context) (float64, error) {
		topic, err := b.topic(ctx)
		if err = errors.Join(err, b.fixture.rdb.FlushAll(ctx).Err()); err != nil {
			return 0, err
		}
		rate, _, err := runPeer(ctx, "-peer", "watermill-kafka", "-addr", b.fixture.server.Addr, "-kafka", b.broker.Addr,
			"-topic", topic, "-callers", "64", "-n", strconv.Itoa(b.n))
		return rate, err
	}, b.ours("none"))
	return []Result{res}, errors.Join(err, b.close())
}

// runPeer runs command peers, and gives the rates that it prints, the most important first.
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
