package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/sink/sinktest"
	"github.com/hongbao-project/hongbao/topic"
)

// The topic has each event once. It is a log: of two grants of one packet it has both, and its readers decide.
func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Subject { return newSubject(t, setup(t)) })
}

func TestKafkaSink(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Subject { return newSubject(t, real(t, broker)) })
}

func newSubject(t testing.TB, b *bench) sinktest.Subject {
	t.Helper()
	b.cfg.AttemptTime, b.cfg.RequestTimeout = 2*time.Second, 2*time.Second
	s := &subject{bench: b, next: make([]int64, b.cfg.Partitions), records: map[string]int{}}
	b.store.fault = s.fault
	var err error
	s.probe, err = New(b.cfg, newStore(), newStore())
	require.NoError(t, err)
	t.Cleanup(s.probe.Close)
	return sinktest.Subject{Open: s.open, Effects: s.effects, Grants: s.grants, Poison: poison, Down: s.down, Lose: s.loss.Lose,
		ByEvent: true}
}

// subject is a topic that can be down, and that can lose single requests: those that produce, and those about claims.
type subject struct {
	*bench
	probe   *Publisher
	next    []int64        // by partition: the first offset that was not read yet
	records map[string]int // by event, packet and user
	loss    testkit.Loss

	mu     sync.Mutex
	isDown bool
}

// fault is the fault of the store of claims, which stays up while the brokers are down.
func (s *subject) fault(string) (before, after error) {
	request, answer := s.loss.Step()
	if request {
		before = hongbao.Outagef(hongbao.ClassTransient, "no connection to the claims")
	}
	if answer {
		after = hongbao.Outagef(hongbao.ClassUnknown, "the answer about the claim is lost")
	}
	return before, after
}

// flaky is a RoundTripper to the brokers.
type flaky struct {
	inner kafka.RoundTripper
	*subject
}

func (f flaky) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	f.mu.Lock()
	isDown := f.isDown
	f.mu.Unlock()
	if isDown {
		return nil, errWire
	}
	if _, produces := req.(*rawproduce.Request); !produces {
		return f.inner.RoundTrip(ctx, addr, req)
	}
	request, answer := f.loss.Step()
	if request {
		return nil, errWire
	}
	resp, err := f.inner.RoundTrip(ctx, addr, req)
	if answer && err == nil {
		return nil, errWire
	}
	return resp, err
}

func (s *subject) open(t testing.TB) hongbao.Handler {
	t.Helper()
	p, err := New(s.cfg, s.store, s.store)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.client = newClient(&s.cfg, flaky{p.transport, s})
	return p
}

func (s *subject) down(_ testing.TB, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = down
}

func unit(g *hongbao.Grant) string {
	return fmt.Sprintf("%s %s/%d/%s", g.EventID(), g.Campaign, g.Packet, g.User)
}

// effects counts the records of the grants. It reads what the topic has got since its last call.
func (s *subject) effects(t testing.TB, grants []hongbao.Grant) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for part := range s.next {
		var all bounds
		require.NoError(t, s.probe.ask(ctx, "bounds",
			func(ctx context.Context) (err error) { all, err = s.probe.bounds(ctx, part); return err }))
		all.start = max(all.start, s.next[part])
		readPartition(ctx, t, &s.cfg, int32(part), all, func(r *kgo.Record) {
			e, err := decodeKgo(r)
			if errors.Is(err, topic.ErrForeign) {
				return
			}
			require.NoError(t, err)
			s.records[unit(&e.Grant)]++
		})
		s.next[part] = all.end
	}
	counts := make([]int, len(grants))
	for i := range grants {
		counts[i] = s.records[unit(&grants[i])]
	}
	return counts
}

// grants returns grants of the stream, from which a batch can be built again.
func (s *subject) grants(_ testing.TB, shard, n int) []hongbao.Grant {
	return slices.Clone(s.store.grants(shard, n, decided))
}

// poison makes a grant that can't be a message.
func poison(_ testing.TB, g hongbao.Grant) hongbao.Grant {
	g.User = "a user"
	return g
}
