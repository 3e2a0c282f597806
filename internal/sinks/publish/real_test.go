package publish

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// real returns a bench with an Apache Kafka broker and no in-process broker.
func real(t testing.TB, b *testkit.KafkaBroker) *bench {
	t.Helper()
	cfg := testConfig(b.Addr)
	cfg.Topic = b.Topic(t, 2, nil)
	cfg.AttemptTime, cfg.RequestTimeout, cfg.MaxClaimAge = 5*time.Second, 4*time.Second, 30*time.Second
	return &bench{cfg: cfg, store: newStore()}
}

func TestKafkaCheck(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	p, _ := b.worker(t)
	report, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Skipped, "Apache Kafka reports everything")
	require.Equal(t, 24*time.Hour, report.ProducerExpiration)
	b.cfg.Topic += "-made"
	b.cfg.Create, b.cfg.ReplicationFactor, b.cfg.BatchBytes = true, 1, 3<<20
	p, _ = b.worker(t)
	report, err = p.Check(t.Context())
	require.NoError(t, err)
	require.True(t, report.Created)
	b.cfg.BatchBytes, b.cfg.Partitions = 4<<20, 3
	p, _ = b.worker(t)
	_, err = p.Check(t.Context())
	require.ErrorContains(t, err, maxBytes)
	require.ErrorContains(t, err, "2 partitions, configured are 3")
}

func TestKafkaJudgesCopies(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]fate{
		"lost": {lost}, "swallowed": {swallow, swallow}, "late": {deferred, deferred}, "mixed": {swallow, deferred, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t, testkit.Kafka(t))
			p, w := b.worker(t)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			w.fate = fates(list...)
			g := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			w.flush(t)
			require.Equal(t, len(list), w.fired)
			x := b.store.shard(0).entries
			requireOneCopy(t, &b.cfg, x[0].Grants, g, x[2].Grants)
		})
	}
}

func TestKafkaLookBack(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"arrived": swallow, "did not arrive": deferred} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t, testkit.Kafka(t))
			strangers(t, b)
			g, zombie := orphan(t, b, 20, f)
			strangers(t, b)
			p, _ := forgetful(t, b)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			s := p.Stats()
			require.EqualValues(t, 1, s.FoundInLog+s.LetGo)
			zombie.flush(t)
			requireOrphansOnce(t, b, g)
		})
	}
}

func TestKafkaGapIsLookedBackAt(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
	p.slots[0].session.sequence += 100 // creates a gap, as if the broker had lost the end of its log
	g := b.store.grants(0, 5, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, p.Stats().LetGo)
	requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g)
}

func TestKafkaTakeoverWhileTheOwnerIsPaused(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"sent again": false, "looked back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := real(t, testkit.Kafka(t))
			owner, _ := b.worker(t)
			other, _ := b.worker(t)
			if old {
				other.expiration.Store(0)
			}
			require.Nil(t, owner.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			g := b.store.grants(0, 20, decided)
			took := false
			b.store.granted = func(stream.Claim) {
				if !took {
					took = true
					require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
				}
			}
			require.Nil(t, owner.Handle(t.Context(), testkit.Batch(g)))
			require.EqualValues(t, 1, other.Stats().TakenOver)
			next := b.store.grants(0, 20, decided)
			require.Nil(t, owner.Handle(t.Context(), testkit.Batch(next)))
			require.EqualValues(t, 3, owner.Stats().Sessions,
				"the first was discarded after the takeover, the second after its claim found the events done")
			requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g, next)
		})
	}
}

func TestKafkaSwallowedAnswerOnTheWire(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	b := real(t, broker)
	b.cfg.Brokers = []string{broker.Proxy.Addr}
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	broker.Proxy.SwallowAnswers(1, isProduce)
	g := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.Equal(t, 1, broker.Proxy.Fired().Swallowed)
	require.EqualValues(t, 1, p.Stats().Resends)

	broker.Proxy.SwallowAnswers(1000, isProduce) // this time until AttemptTime is over
	outage := b.store.grants(0, 20, decided)
	errs := p.Handle(t.Context(), testkit.Batch(outage))
	requireClass(t, errs, 20, hongbao.ClassUnknown, true)
	broker.Proxy.SwallowAnswers(0, nil)
	require.Greater(t, broker.Proxy.Fired().Swallowed, 1)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(outage)))
	requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g, outage)
}

// isProduce reports whether the request is a produce request, by the API key after its size.
func isProduce(request []byte) bool {
	return len(request) > 6 && binary.BigEndian.Uint16(request[4:]) == 0
}

// isFetch reports whether the request is a fetch request, by its API key.
func isFetch(request []byte) bool {
	return len(request) > 6 && binary.BigEndian.Uint16(request[4:]) == 1
}

// A scan continues if no response comes for the time of four attempts. It fails if none comes for five.
func TestASlowFetchEndsNoScan(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	b := real(t, broker)
	b.cfg.Brokers = []string{broker.Proxy.Addr}
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	cfg := b.cfg
	cfg.AttemptTime = time.Second
	log, err := NewLog(cfg)
	require.NoError(t, err)
	t.Cleanup(log.Close)
	scan := func() (ScanReport, error) {
		return log.Scan(t.Context(), nil, func(Position, topic.Event) error { return nil })
	}
	broker.Proxy.SwallowAnswers(1000, isFetch)
	back := time.AfterFunc(cfg.AttemptTime*7/2, func() { broker.Proxy.SwallowAnswers(0, nil) })
	defer back.Stop()
	r, err := scan()
	require.Greater(t, broker.Proxy.Fired().Swallowed, 1)
	require.NoError(t, err)
	require.EqualValues(t, 20, r.Events)
	broker.Proxy.SwallowAnswers(1000, isFetch)
	_, err = scan()
	require.True(t, hongbao.IsOutage(err), "%v", err)
}

// The broker is killed between send and complete. After its restart, it forgets producers whose records are old. The
// records have the time of sending, not that of the grabs over a day ago. So the broker still recognizes the copy.
func TestKafkaBrokerKilledBetweenSendAndComplete(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	b := real(t, broker)
	b.cfg.AttemptTime = 20 * time.Second
	p, _ := b.worker(t)
	longAgo := time.Now().Add(-49 * time.Hour)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, longAgo))))
	down := hongbao.Errorf(hongbao.ClassUnknown, "the worker died")
	killed := false
	b.store.fault = func(op string) (error, error) {
		if op != "complete" || killed {
			return nil, nil
		}
		killed = true
		return errors.Join(down, broker.Kill()), nil
	}
	g := b.store.grants(0, 20, longAgo)
	require.Len(t, p.Handle(t.Context(), testkit.Batch(g)), 20)
	require.True(t, killed)
	require.NoError(t, broker.Restart())
	other, _ := b.worker(t)
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, other.Stats().SentAgain)

	// Now the broker is killed before the request. The request is retried until the broker is back.
	var restarted sync.WaitGroup
	b.store.granted = func(stream.Claim) {
		if err := broker.Kill(); err != nil {
			t.Error(err)
		}
		restarted.Go(func() {
			if err := broker.Restart(); err != nil {
				t.Error(err)
			}
		})
		b.store.granted = nil
	}
	next := b.store.grants(0, 20, longAgo)
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(next)))
	restarted.Wait()
	require.Positive(t, other.Stats().Resends)
	requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g, next)
}

func TestKafkaTopicDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	b := real(t, broker)
	b.cfg.AttemptTime = 2 * time.Second
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	_, err := p.client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{b.cfg.Topic}})
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, err := p.bounds(t.Context(), 0)
		return outcomeOf(err) == absent
	}, "the topic is gone")
	g := b.store.grants(0, 20, decided)
	requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassBroken, false)
	require.Zero(t, b.store.open(0), "the claim was released, because nothing was appended")
	// A session of a worker that has not noticed the deletion.
	session := &session{numbers: numbers{producer: 1 << 40}, end: 20, known: time.Now()}
	require.NoError(t, broker.CreateTopic(t.Context(), b.cfg.Topic, 2, nil))
	fresh, _ := b.worker(t)
	fresh.slots[0].session = session
	errs := fresh.Handle(t.Context(), testkit.Batch(g))
	requireClass(t, errs, 20, hongbao.ClassBroken, false)
	require.ErrorContains(t, errs[0], "went back")
	require.Nil(t, fresh.Handle(t.Context(), testkit.Batch(g)), "after the report, the batch is appended to the new log")
	next := b.store.grants(0, 20, decided)
	errs = p.Handle(t.Context(), testkit.Batch(next))
	requireClass(t, errs, 20, hongbao.ClassBroken, false)
	require.ErrorContains(t, errs[0], "went back", "the first worker reports it, too")
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(next)), "and continues")
	requireOneCopy(t, &b.cfg, g, next)
}

func TestKafkaScanIsQuick(t *testing.T) {
	b := real(t, testkit.Kafka(t))
	b.cfg.BatchGrants, b.cfg.BatchBytes, b.cfg.FetchBytes = 1000, 900<<10, 8<<20
	p, _ := b.worker(t)
	const n = 100_000
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range n / 10_000 {
		require.Nil(t, p.Handle(ctx, testkit.Batch(b.store.grants(0, 5_000, decided))))
		require.Nil(t, p.Handle(ctx, testkit.Batch(b.store.grants(1, 5_000, decided))))
	}
	pushed := time.Since(start)
	start = time.Now()
	report, err := p.Scan(ctx, nil, func(Position, topic.Event) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, n, report.Events)
	t.Logf("%d grants pushed in %v, scanned in %v", n, pushed, time.Since(start))
}
