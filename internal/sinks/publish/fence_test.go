package publish

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// recoverer returns a Log as another process would use it.
func (b *bench) recoverer(t *testing.T) *Log {
	t.Helper()
	l, err := NewLog(b.cfg)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// requireFenced calls Fence. It must return exactly the grants want, and fence this number of producer ids.
func requireFenced(t *testing.T, l *Log, f stream.TopicFence, producers int, want ...hongbao.Grant) {
	t.Helper()
	got, err := l.Fence(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, producers, got.Producers)
	for i := range want {
		want[i].EntryID = ""
	}
	require.ElementsMatch(t, want, got.Grants)
	require.True(t, slices.IsSortedFunc(got.Grants, func(a, b hongbao.Grant) int { return int(a.Seq - b.Seq) }))
}

// claimsOf returns the open claims of a shard.
func (s *store) claimsOf(shard int) (list []stream.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.shard(shard).claims {
		list = append(list, *c)
	}
	return list
}

// A publisher has made a claim in an old Redis, and the shard is fenced before the publisher sends. The new Redis does
// not have the claim. The publisher must neither send the batch nor claim it again.
func TestKafkaFenceStopsAPublisherBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	ledger := int64(1)
	b.cfg.Epoch = func(context.Context, int) (int64, error) { return ledger, nil }
	p, _ := b.worker(t)
	ctx := t.Context()
	before, lost := b.store.grants(0, 20, decided), b.store.grants(0, 20, decided)
	for i := range 4 { // several batches with the same session
		require.Nil(t, p.Handle(ctx, testkit.Batch(before[i*5:i*5+5])))
	}
	fired := 0
	b.store.granted = func(stream.Claim) {
		fired++
		ledger = 2
		requireFenced(t, b.recoverer(t), stream.TopicFence{Shard: 0}, 1, slices.Clone(before)...)
	}
	errs := p.Handle(ctx, testkit.Batch(lost))
	requireClass(t, errs, 20, hongbao.ClassTransient, true)
	require.ErrorContains(t, errs[0], "continues elsewhere")
	require.Equal(t, 1, fired, "the publisher's next session makes no claim")
	require.EqualValues(t, 2, p.Stats().Sessions)
	require.Equal(t, 1, b.store.open(0), "the claim stays in the old Redis")
	requireOneCopy(t, &b.cfg, before)
}

// A request of a stopped publisher arrives after the fence, and the broker refuses it. The next worker settles the open
// claim by reading the log.
func TestKafkaFenceRefusesALateBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate  fate
		known bool // Fence finds the session by its records; otherwise only by its claim
	}{
		"session in the log, sent": {swallow, true}, "session in the log, not sent": {deferred, true},
		"claim in Redis, sent": {swallow, false}, "claim in Redis, not sent": {deferred, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t, testkit.Kafka(t))
			strangers(t, b)
			g, zombie := orphan(t, b, 20, c.fate)
			l := b.recoverer(t)
			f := stream.TopicFence{Shard: 0}
			if !c.known {
				f.Since, f.Claims = time.Now().Add(time.Hour), b.store.claimsOf(0)
			}
			var arrived []hongbao.Grant
			if c.known && c.fate == swallow {
				arrived = slices.Clone(g)
			}
			requireFenced(t, l, f, 1, arrived...)
			late := zombie.flushQuietly()
			if c.fate == deferred {
				require.Equal(t, 1, late)
				content := topicContent(t, &b.cfg)
				require.Empty(t, content[g[0].EventID()], "the broker refused it")
			}
			next, _ := b.worker(t)
			require.Nil(t, next.Handle(t.Context(), testkit.Batch(g)))
			s := next.Stats()
			require.Zero(t, s.SentAgain, "no batch is sent with the old numbers")
			if c.fate == swallow {
				require.EqualValues(t, 1, s.FoundInLog)
			} else {
				require.EqualValues(t, 1, s.LetGo)
			}
			requireOrphansOnce(t, b, g)
		})
	}
}

// A second call of Fence returns the same grants and fences no further producer. Sessions of other deployments and
// other producers still work.
func TestKafkaFenceTwice(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	strangers(t, b)
	var all [][]hongbao.Grant
	for range 3 {
		p, w := b.worker(t)
		w.fate = fates(swallow, pass, swallow)
		for range 2 {
			all = append(all, b.store.grants(0, 20, decided))
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(all[len(all)-1])))
		}
		require.Equal(t, 2, w.fired)
	}
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(2, 3, decided))), "another shard of the partition")
	cfg, theirs := b.cfg, newStore()
	cfg.Deployment = "d2"
	other, err := New(cfg, theirs, theirs)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(theirs.grants(0, 5, decided))))

	l := b.recoverer(t)
	w := &wire{inner: l.transport, fate: fates(swallow, lost, pass, swallow)}
	l.client = newClient(&b.cfg, w)
	requireFenced(t, l, stream.TopicFence{Shard: 0}, 4, slices.Concat(all...)...)
	require.Equal(t, 3, w.fired)
	n := fences(t, l, 0)
	require.Equal(t, 4+4, n, "one from each session and one from Fence for each session; repeated sends add none")
	for _, since := range []time.Time{{}, l.FenceSince(time.Now())} {
		requireFenced(t, l, stream.TopicFence{Shard: 0, Since: since}, 0, slices.Concat(all...)...)
	}
	requireFenced(t, l, stream.TopicFence{Shard: 2}, 0, slices.Clone(b.store.shard(2).entries[0].Grants)...)
	requireFenced(t, l, stream.TopicFence{Shard: 0, Since: time.Now().Add(time.Hour)}, 0)
	require.Equal(t, n, fences(t, l, 0))
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(theirs.grants(0, 5, decided))))
	require.EqualValues(t, 1, other.Stats().Sessions)
}

// A claim has a producer id that another worker has fenced with a later epoch. Fence still fences it once, with a new
// producer id.
func TestKafkaFenceOfAProducerThatWasFencedHigher(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	g, zombie := orphan(t, b, 20, deferred)
	claims, l := b.store.claimsOf(0), b.recoverer(t)
	st, err := parseStored(claims[0].Payload)
	require.NoError(t, err)
	_, err = l.fence(t.Context(), 0, numbers{producer: st.producer, epoch: 7})
	require.NoError(t, err)
	n := fences(t, l, 0)
	for i := range 2 {
		requireFenced(t, l, stream.TopicFence{Shard: 0, Since: time.Now().Add(time.Hour), Claims: claims}, 1)
		require.Equal(t, n+1+i, fences(t, l, 0), "one more record, with a new producer id")
	}
	requireFenced(t, l, stream.TopicFence{Shard: 0, Claims: claims}, 0)
	zombie.flushQuietly()
	require.Empty(t, topicContent(t, &b.cfg)[g[0].EventID()])
}

// Recoverers fence two shards of one partition concurrently and repeatedly, while publishers write to other shards of
// the partition. Each grant must be in the topic once, and the publishers of the fenced shards must stop.
func TestKafkaFencesAtOnce(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	var fencing atomic.Bool
	b.cfg.Epoch = func(_ context.Context, shard int) (int64, error) {
		if fencing.Load() && shard < 4 {
			return 2, nil
		}
		return 1, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	published := make([][]hongbao.Grant, 8)
	var publishers, recoverers sync.WaitGroup
	for shard := 0; shard < 8; shard += 2 {
		p, _ := b.worker(t)
		publish := func(ctx context.Context) bool {
			g := b.store.grants(shard, 10, decided)
			errs := p.Handle(ctx, testkit.Batch(g))
			for ctx.Err() == nil && errs != nil && hongbao.IsOutage(errs[0]) {
				errs = p.Handle(ctx, testkit.Batch(g))
			}
			if errs == nil {
				published[shard] = append(published[shard], g...)
			}
			return errs == nil
		}
		require.True(t, publish(ctx))
		publishers.Go(func() {
			for ctx.Err() == nil && publish(ctx) {
			}
		})
	}
	fencing.Store(true)
	var found [8]atomic.Int64
	for shard := 0; shard < 4; shard += 2 {
		for range 2 {
			l := b.recoverer(t)
			recoverers.Go(func() {
				for range 5 {
					got, err := l.Fence(ctx, stream.TopicFence{Shard: shard, Claims: b.store.claimsOf(shard)})
					if n := int64(len(got.Grants)); err != nil || !found[shard].CompareAndSwap(0, n) && found[shard].Load() != n {
						t.Errorf("shard %d: %d grants, and %d before: %v", shard, n, found[shard].Load(), err)
					}
				}
			})
		}
	}
	recoverers.Wait()
	stop()
	publishers.Wait()
	content := topicContent(t, &b.cfg)
	for shard := 0; shard < 8; shard += 2 {
		for i := range published[shard] {
			require.Len(t, content[published[shard][i].EventID()], 1)
		}
		if shard < 4 {
			require.GreaterOrEqual(t, found[shard].Load(), int64(len(published[shard])))
		}
	}
	for event, copies := range content {
		require.Len(t, copies, 1, event)
	}
}

// A live publisher whose session was fenced because of another shard continues with a new producer id. This works after
// any idle time.
func TestKafkaFencedSessionGoesOn(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{
		"at work": 0, "so idle that it asks for the end of the log": 20 * time.Second, "so idle that it first sends a fence record": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t, testkit.Kafka(t))
			b.cfg.MaxClaimAge = 10 * time.Second
			p, _ := b.worker(t)
			pass := later(p)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			requireFenced(t, b.recoverer(t), stream.TopicFence{Shard: 2}, 1)
			strangers(t, b) // the log grows
			pass(idle)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			x := b.store.shard(0).entries
			requireOneCopy(t, &b.cfg, x[0].Grants, x[1].Grants, x[2].Grants)
			require.Zero(t, p.Stats().SentAgain)
		})
	}
}

// The broker refuses the fence record. Fence still returns the grants in the topic, from which a recoverer restores done
// bits.
func TestFenceThatIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	l := b.recoverer(t)
	w := &wire{inner: l.transport, answer: func(r kafka.Request) error {
		if _, produces := r.(*rawproduce.Request); produces {
			return kafka.TopicAuthorizationFailed
		}
		return nil
	}}
	l.client = newClient(&b.cfg, w)
	fenced, err := l.Fence(t.Context(), stream.TopicFence{})
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
	require.False(t, hongbao.IsOutage(err), "%v", err)
	require.Len(t, fenced.Grants, 20)
}

// Fence refuses a compacted topic. In the other cases it reports in Doubt what it is not sure of.
func TestKafkaFenceInDoubt(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	t.Run("a compacted topic", func(t *testing.T) {
		t.Parallel()
		b := real(t, broker)
		b.cfg.Topic = broker.Topic(t, 2, map[string]string{"cleanup.policy": "compact"})
		_, err := b.recoverer(t).Fence(t.Context(), stream.TopicFence{})
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, cleanup)
	})
	t.Run("a log that went back", func(t *testing.T) {
		t.Parallel()
		b := real(t, broker)
		orphan(t, b, 20, lost)
		claims := b.store.claimsOf(0)
		b.cfg.Topic = broker.Topic(t, 2, nil)
		st, err := parseStored(claims[0].Payload)
		require.NoError(t, err)
		st.topic = b.cfg.Topic
		claims[0].Payload = st.String()
		fenced, err := b.recoverer(t).Fence(t.Context(), stream.TopicFence{Claims: claims})
		require.NoError(t, err)
		require.Contains(t, fenced.Doubt, "went back")
		require.Equal(t, 1, fenced.Producers)
	})
	t.Run("a claim that can't be read", func(t *testing.T) {
		t.Parallel()
		b := real(t, broker)
		fenced, err := b.recoverer(t).Fence(t.Context(), stream.TopicFence{Claims: []stream.Claim{{ID: "w1.1", Payload: "?"}}})
		require.NoError(t, err)
		require.Contains(t, fenced.Doubt, "w1.1")
	})
	t.Run("a grant that can't be read", func(t *testing.T) {
		t.Parallel()
		b := real(t, broker)
		p, _ := b.worker(t)
		g := b.store.grants(0, 1, decided)
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
		headers, value := messageOf(t, &g[0])
		writeBroken(t, b, headers[:8], g[0].User, value)
		fenced, err := b.recoverer(t).Fence(t.Context(), stream.TopicFence{})
		require.NoError(t, err)
		require.Contains(t, fenced.Doubt, "offset ")
		require.Len(t, fenced.Grants, 1)
	})
}
