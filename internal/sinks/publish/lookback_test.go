package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// orphan leaves an open claim with a batch of n grants, as if the worker had died. f is the fate of the batch's
// request.
func orphan(t *testing.T, b *bench, n int, f fate) ([]hongbao.Grant, *wire) {
	t.Helper()
	p, w := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(4, 3, decided))), "the batch is not at the start of the partition")
	g := b.store.grants(0, n, decided)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.fate = func() fate { cancel(); return f }
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), n, hongbao.ClassUnknown, true)
	require.Equal(t, 1, b.store.open(0))
	require.Equal(t, 1, w.sends)
	return g, w
}

// forgetful returns a worker that considers every stored batch too old to be sent again, so it looks back.
func forgetful(t *testing.T, b *bench) (*Publisher, *wire) {
	t.Helper()
	p, w := b.worker(t)
	p.expiration.Store(0)
	return p, w
}

// requireOrphansOnce checks that the topic has exactly these grants and the 3 grants that orphan wrote to shard 4, each
// once.
func requireOrphansOnce(t *testing.T, b *bench, grants ...[]hongbao.Grant) {
	t.Helper()
	requireOneCopy(t, &b.cfg, append(grants, b.store.shard(4).entries[0].Grants)...)
}

func TestOldBatchThatArrivedIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, _ := orphan(t, b, 20, swallow)
	p, _ := forgetful(t, b)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g[5:8])))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	s := p.Stats()
	require.EqualValues(t, 1, s.FoundInLog)
	require.Zero(t, s.Fences, "no fence record was needed")
	requireOrphansOnce(t, b, g)
}

func TestOldBatchThatDidNotArriveIsSentAnewAndItsLateCopyRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, zombie := orphan(t, b, 20, deferred)
	p, _ := forgetful(t, b)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	s := p.Stats()
	require.EqualValues(t, 1, s.LetGo)
	require.EqualValues(t, 1, s.Fences)
	require.Equal(t, 1, zombie.flush(t))
	requireOrphansOnce(t, b, g)
}

func TestLateCopyThatArrivesWhileLookingBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, zombie := orphan(t, b, 20, deferred)
	p, w := forgetful(t, b)
	flushed := 0
	w.answer = func(r kafka.Request) error {
		if _, ok := r.(*rawproduce.Request); ok { // this is the fence record; the log has already been read
			flushed += zombie.flush(t)
		}
		return nil
	}
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.Equal(t, 1, flushed)
	require.EqualValues(t, 1, p.Stats().FoundInLog)
	requireOrphansOnce(t, b, g)
}

func TestDeathBetweenFenceAndRelease(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"remembered": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			g, zombie := orphan(t, b, 20, deferred)
			p, _ := forgetful(t, b)
			fired := 0
			b.store.fault = func(op string) (error, error) {
				if op == "release" && fired == 0 {
					fired++
					return hongbao.Errorf(hongbao.ClassUnknown, "redis is down"), nil
				}
				return nil, nil
			}
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, false)
			require.Equal(t, 1, fired)
			next, _ := b.worker(t)
			if old {
				next.expiration.Store(0)
			}
			require.Nil(t, next.Handle(t.Context(), testkit.Batch(g)))
			require.EqualValues(t, 1, next.Stats().LetGo)
			zombie.flush(t)
			requireOrphansOnce(t, b, g)
		})
	}
}

func TestBrokerCannotJudgeTheFirstSend(t *testing.T) {
	t.Parallel()
	for _, code := range []kafka.Error{kafka.OutOfOrderSequenceNumber, kafka.DuplicateSequenceNumber,
		kafka.UnknownProducerId} {
		t.Run(code.Title(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			n := 0
			w.answer = func(r kafka.Request) error {
				if _, ok := r.(*rawproduce.Request); ok {
					if n++; n == 1 {
						return code
					}
				}
				return nil
			}
			g := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			require.EqualValues(t, 1, p.Stats().LetGo)
			requireOneCopy(t, &b.cfg, g)
		})
	}
}

// The broker refused a batch because of one grant, so parts of it were sent under claims of their own. Redis has lost
// these claims and their done bits, and has the first claim again. The grants in the log count as published, and the
// others are sent. Found by the simulation.
func TestAPartOfABatchIsInTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, zombie := orphan(t, b, 20, deferred)
	forgotten, err := New(b.cfg, newStore(), b.store) // its claims are in another store
	require.NoError(t, err)
	defer forgotten.Close()
	require.Nil(t, forgotten.Handle(t.Context(), testkit.Batch(append(g[3:7:7], g[11:14]...))))
	p, _ := forgetful(t, b)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	zombie.flush(t)
	requireOrphansOnce(t, b, g)
	require.Zero(t, b.store.open(0))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	requireOrphansOnce(t, b, g)
}

func TestRetentionPassedTheNotedOffset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, _ := orphan(t, b, 20, swallow)
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, 5))
	p, _ := forgetful(t, b)
	requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassConflict, false)
	require.Equal(t, 1, b.store.open(0), "it waits for a person")
}

func TestTopicDeletedAndMadeAgainIsNoticed(t *testing.T) {
	t.Parallel()
	remake := func(t *testing.T, b *bench) {
		t.Helper()
		require.NoError(t, b.broker.DeleteTopic(testTopic))
		require.NoError(t, b.broker.CreateTopic(testTopic, 2, nil))
	}
	t.Run("when sending", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, _ := b.worker(t)
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
		remake(t, b)
		g := b.store.grants(0, 5, decided)
		// A real broker accepts any sequence from an unknown producer, but kfake expects 0 on an empty log.
		p.slots[0].session.sequence = 0
		requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 5, hongbao.ClassBroken, false)
	})
	t.Run("when idle", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, _ := b.worker(t)
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
		remake(t, b)
		p.slots[0].session.known = decided // older than MaxClaimAge, so the session asks for the end of the log
		requireClass(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))), 5, hongbao.ClassBroken, false)
	})
	t.Run("when looking back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		g, _ := orphan(t, b, 20, swallow)
		remake(t, b)
		p, _ := forgetful(t, b)
		requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassBroken, false)
		require.Equal(t, 1, b.store.open(0))
	})
}

// The batch is in a topic that was made again, before the offset that its claim noted in the old one. The new log is
// longer than the old one was, and this worker has seen neither.
func TestBatchBeforeItsNotedOffset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, _ := orphan(t, b, 3, swallow)
	var batch []*kgo.Record
	readPartition(t.Context(), t, &b.cfg, 0, bounds{0, 7}, func(r *kgo.Record) {
		if e, err := decodeKgo(r); err == nil && e.Grant.Shard == 0 {
			batch = append(batch, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value,
				Headers: r.Headers, Timestamp: r.Timestamp})
		}
	})
	require.Len(t, batch, 3)
	require.NoError(t, b.broker.DeleteTopic(testTopic))
	require.NoError(t, b.broker.CreateTopic(testTopic, 2, nil))
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), batch...).FirstErr())
	fresh, _ := b.worker(t)
	others := b.store.grants(2, 60, decided)
	require.Nil(t, fresh.Handle(t.Context(), testkit.Batch(others)))
	p, _ := forgetful(t, b)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, p.Stats().FoundInLog)
	requireOneCopy(t, &b.cfg, others, g)
}

func TestEntriesGoneFromTheStream(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"arrived": swallow, "did not arrive": deferred} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			g, zombie := orphan(t, b, 20, f)
			b.store.shard(0).entries = nil
			p, _ := b.worker(t)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)), "the grants of the call are published anyway")
			zombie.flush(t)
			requireOrphansOnce(t, b, g)
		})
	}
}

// The stream has forged or copied entries around those of a stored batch, or its entries are in another order. The
// batch must be rebuilt from its own entries only. The topic has each grant once, as it was decided.
func TestStoredBatchAmongForgedEntries(t *testing.T) {
	t.Parallel()
	forged := func(e stream.Entry, from, to int) stream.Entry {
		e.ID += "1"
		e.Seq, e.Grants = e.Seq+int64(from), slices.Clone(e.Grants[from:to])
		for i := range e.Grants {
			e.Grants[i].User, e.Grants[i].EntryID = "thief", e.ID
		}
		return e
	}
	for name, change := range map[string]func(e []stream.Entry) []stream.Entry{
		"ahead of a real one":    func(e []stream.Entry) []stream.Entry { return slices.Insert(e, 1, forged(e[1], 0, 1)) },
		"all of a real one":      func(e []stream.Entry) []stream.Entry { return slices.Insert(e, 1, forged(e[1], 0, 5)) },
		"behind a real one":      func(e []stream.Entry) []stream.Entry { return slices.Insert(e, 2, forged(e[1], 2, 5)) },
		"of a seq of the past":   func(e []stream.Entry) []stream.Entry { return slices.Insert(e, 2, forged(e[0], 1, 2)) },
		"a real one once more":   func(e []stream.Entry) []stream.Entry { return slices.Insert(e, 2, e[1]) },
		"in another order":       func(e []stream.Entry) []stream.Entry { e[1], e[2] = e[2], e[1]; return e },
		"in place of a real one": func(e []stream.Entry) []stream.Entry { e[1] = forged(e[1], 0, 5); return e },
	} {
		for fateName, f := range map[string]fate{"arrived": swallow, "did not arrive": deferred} {
			t.Run(name+", "+fateName, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p, w := b.worker(t)
				require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(4, 3, decided))), "the batch is not the first one")
				var g []hongbao.Grant
				for range 4 {
					g = append(g, b.store.grants(0, 5, decided)...)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w.fate = func() fate { cancel(); return f }
				requireClass(t, p.Handle(ctx, testkit.Batch(g)), len(g), hongbao.ClassUnknown, true)
				b.store.shard(0).entries = change(b.store.shard(0).entries)
				next, _ := b.worker(t)
				require.Nil(t, next.Handle(t.Context(), testkit.Batch(g)))
				w.flush(t)
				requireOrphansOnce(t, b, g)
			})
		}
	}
}

func TestOpenClaimsThatDoNotFitStopTheShard(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*stream.Claim){
		"unreadable":  func(c *stream.Claim) { c.Payload = "2" + c.Payload[1:] },
		"other topic": func(c *stream.Claim) { c.Payload = strings.Replace(c.Payload, " "+testTopic+" ", " other ", 1) },
		"other partition": func(c *stream.Claim) {
			f := strings.Fields(c.Payload)
			f[4] = "1"
			c.Payload = strings.Join(f,
				" ")
		},
		"other events": func(c *stream.Claim) { c.Events[0].Last = 19 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			g, _ := orphan(t, b, 20, swallow)
			for _, c := range b.store.shard(0).claims {
				change(c)
			}
			p, w := b.worker(t)
			w.fate = fates()
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassBroken, false)
			require.Zero(t, w.sends)
			require.Equal(t, 1, b.store.open(0))
		})
	}
}

// strangers writes records of other producers: compressed records, a committed transaction and an aborted one, each
// with its control record. It returns the number of records without the control records.
func strangers(t *testing.T, b *bench) int {
	t.Helper()
	cfg := &b.cfg
	plain, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	require.NoError(t, err)
	defer plain.Close()
	big := []byte(strings.Repeat("z", 3000))
	require.NoError(t, plain.ProduceSync(t.Context(), &kgo.Record{Value: big},
		&kgo.Record{Key: []byte("k"), Value: big}).FirstErr())

	tx, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(t.Name()))
	require.NoError(t, err)
	defer tx.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, tx.BeginTransaction())
		require.NoError(t, tx.ProduceSync(t.Context(),
			&kgo.Record{Value: nil, Headers: []kgo.RecordHeader{{Key: "seq", Value: []byte("1")}}}).FirstErr())
		require.NoError(t, tx.EndTransaction(t.Context(), end))
	}
	return 4
}

func TestLookingBackPassesOverStrangers(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"arrived": swallow, "did not arrive": deferred} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			strangers(t, b)
			g, zombie := orphan(t, b, 20, f)
			strangers(t, b)
			p, _ := forgetful(t, b)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			zombie.flush(t)
			requireOrphansOnce(t, b, g)
		})
	}
}

// If only a person can decide a claim, only the claim's own grants fail. The other grants of the call are sent.
func TestAnUndecidableClaimFailsItsOwnGrantsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, _ := orphan(t, b, 2, swallow)
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, 6)) // as if retention had deleted the place of the batch
	more := b.store.grants(0, 60, decided)
	p, _ := forgetful(t, b)
	errs := p.Handle(t.Context(), testkit.Batch(append(append(more[:30:30], g...), more[30:]...)))
	require.Len(t, errs, 62)
	for i, err := range errs {
		if i < 30 || i >= 32 {
			require.NoError(t, err, i)
			continue
		}
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), i)
		require.ErrorContains(t, err, "hongbao claim list")
		require.True(t, hongbao.IsUndecided(err), "it does not pause the campaign")
	}
	require.Equal(t, 1, b.store.open(0), "the claim waits for a person")
	requireOneCopy(t, &b.cfg, more)
}
