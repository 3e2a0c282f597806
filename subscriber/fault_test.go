package subscriber

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// The effect of one event always fails. The event becomes a dead letter with its reason. The other events have their
// effect, and the position advances.
func TestPoison(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		reason   string
		attempts string
		class    string
	}{
		"permanent": {hongbao.Errorf(hongbao.ClassPermanent, "no such user"), reasonRefused, "1", "permanent"},
		"conflict":  {hongbao.Errorf(hongbao.ClassConflict, "paid to another"), reasonRefused, "1", "conflict"},
		"transient": {hongbao.Errorf(hongbao.ClassTransient, "again"), reasonAttempts, "3", "transient"},
		"unknown":   {errors.New(strings.Repeat("x", 5000)), reasonAttempts, "3", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, db := inProcess(t, 1), sqliteDB(t, tempFile(t))
			d.write(t, 1, records(0, 1, 50)...)
			poison := func(e *topic.Event) error {
				if e.Grant.Seq == 31 {
					return c.err
				}
				return nil
			}
			w := start(t, d.config(db.sink(t, poison)))
			testkit.Eventually(t, soon, func() bool { s := w.Stats(); return s.Done == 49 && s.Refused == 1 }, "all events but one")
			require.NoError(t, w.stop())
			dead := d.letters(t, 1)[0]
			require.Equal(t, c.reason, letterHeader(dead, headerReason))
			require.Equal(t, c.attempts, letterHeader(dead, headerAttempts))
			require.Equal(t, c.class, letterHeader(dead, headerClass))
			require.LessOrEqual(t, len(letterHeader(dead, headerError)), 1000)
			require.Equal(t, "30", letterHeader(dead, headerOffset))
			require.Equal(t, "u31", string(dead.Key))
			effects, distinct := db.count(t)
			require.Equal(t, [2]int{49, 49}, [2]int{effects, distinct})
			again := start(t, d.config(db.sink(t, poison)))
			d.write(t, 1, record(grant(0, 31)), record(grant(0, 51))) // as a full replay would do
			testkit.Eventually(t, soon, func() bool { return again.Stats().Done == 1 }, "the new event")
			require.NoError(t, again.stop())
			require.EqualValues(t, 1, again.Stats().Repeated, "the dead letter is remembered")

			// The cause is fixed. Under another name, the subscriber now reads the topic of dead letters.
			fixed := db.sink(t, nil)
			fixed.cfg.Name = "fixed"
			cfg := d.config(fixed)
			cfg.Topic, cfg.DeadLetters, cfg.Group = d.burial, "graves-of-graves", "fixed"
			last := start(t, cfg)
			testkit.Eventually(t, soon, func() bool { return last.Stats().Done == 1 }, "the dead letter")
			require.NoError(t, last.stop())
			effects, distinct = db.count(t)
			require.Equal(t, [2]int{51, 51}, [2]int{effects, distinct})
		})
	}
}

// A sink is down for longer than MaxAttempts attempts take. No event becomes a dead letter.
func TestOutage(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	var calls atomic.Int64
	b.fault = func(*topic.Event) error {
		if calls.Add(1) <= 15 {
			return hongbao.Outagef(hongbao.ClassUnknown, "connection refused")
		}
		return nil
	}
	d.write(t, 1, records(0, 1, 20)...)
	w := start(t, d.config(b.funcSink(t)))
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 20 }, "all")
	require.NoError(t, w.stop())
	s := w.Stats()
	require.GreaterOrEqual(t, s.Retries, int64(15))
	require.Zero(t, s.Refused)
}

func TestBrokenSinkEndsRun(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	b.fault = func(*topic.Event) error { return hongbao.Errorf(hongbao.ClassBroken, "the table is another build's") }
	d.write(t, 1, record(grant(0, 1)))
	w := start(t, d.config(b.funcSink(t)))
	<-w.ended
	require.ErrorContains(t, w.err, "another build")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(w.err))
	require.Zero(t, d.committed(t, "g-"+d.topic))

	w = start(t, d.config(lazySink{}))
	<-w.ended
	require.ErrorIs(t, w.err, errIdle, "a sink that handles nothing must end Run")
}

type lazySink struct{}

func (lazySink) Push(context.Context, []topic.Event) (Report, error) { return Report{}, nil }
func (lazySink) Skip(context.Context, topic.Event) error             { return nil }

// stubborn is a letterWriter that fails its first writes, and rejects values larger than most.
type stubborn struct {
	letterWriter
	fails atomic.Int64
	most  int
}

func (s *stubborn) WriteMessages(ctx context.Context, msgs ...kafka.Message) error {
	if s.fails.Add(-1) >= 0 {
		return kafka.WriteErrors{kafka.LeaderNotAvailable}
	}
	if len(msgs[0].Value) > s.most {
		return kafka.WriteErrors{kafka.MessageSizeTooLarge}
	}
	return s.letterWriter.WriteMessages(ctx, msgs...)
}

// The first writes of a dead letter fail. The next record is handled only after the write has succeeded. A too large
// dead letter is written without its value.
func TestDeadLettersAreInsistedOn(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	bad := malformed(1)
	d.write(t, 1, bad, record(grant(0, 2)))
	w := start(t, d.config(b.funcSink(t)), func(s *Subscriber) {
		open := s.newLetters
		s.newLetters = func(c *Config) letterWriter {
			x := &stubborn{letterWriter: open(c), most: len(bad.Value) - 1}
			x.fails.Store(5)
			return x
		}
	})
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1 }, "the event behind it")
	require.NoError(t, w.stop())
	require.EqualValues(t, 5, w.Stats().Retries)
	dead := d.letters(t, 1)[0]
	require.Equal(t, "value", letterHeader(dead, headerCut))
	require.Equal(t, "0", letterHeader(dead, headerOffset))
	require.Empty(t, dead.Value)
}

// A dead letter can't be written, so Run waits. Run stops when its context ends, and the next Run reads the record
// again.
func TestStopWhileADeadLetterCanNotBeWritten(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	d.write(t, 1, malformed(1))
	cfg := d.config(b.funcSink(t))
	cfg.DeadLetters, cfg.DrainTimeout = "not-there", 0
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Retries > 0 }, "it waits")
	require.ErrorContains(t, w.stop(), "not-there")
	require.Zero(t, w.Stats().Malformed)
	require.Zero(t, d.committed(t, cfg.Group))
	cfg.DeadLetters = d.burial
	again := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return again.Stats().Malformed == 1 }, "the record comes again")
	require.NoError(t, again.stop())
}

// A subscriber is stopped in the middle of a batch. It finishes the batch and commits it.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	b.fault = func(e *topic.Event) error {
		if e.Grant.Seq == 1 {
			begun <- struct{}{}
			<-goOn
		}
		return nil
	}
	d.write(t, 1, records(0, 1, 10)...)
	cfg := d.config(b.funcSink(t))
	cfg.BatchEvents = 5
	w := start(t, cfg)
	<-begun
	w.cancel()
	close(goOn)
	<-w.ended
	require.NoError(t, w.err)
	s := w.Stats()
	require.EqualValues(t, 2, s.Commits, "the start and the batch")
	require.Equal(t, s.Done, int64(len(b.copies())))
	require.LessOrEqual(t, s.Done, int64(5), "only the current batch")
	again := start(t, d.config(b.funcSink(t)))
	testkit.Eventually(t, soon, func() bool { return len(b.copies()) == 10 }, "the rest")
	require.NoError(t, again.stop())
	for event, n := range b.copies() {
		require.Equal(t, 1, n, event)
	}
}

// An effect hangs when the subscriber is stopped. It is cancelled after DrainTimeout, and Run returns an error about
// the unfinished events.
func TestStopCancelsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := inProcess(t, 1)
	begun := make(chan struct{}, 10)
	a, err := NewFuncSink(FuncSinkConfig{Timeout: soon, Effect: func(ctx context.Context, _ topic.Event) error {
		begun <- struct{}{}
		<-ctx.Done()
		return hongbao.Errorf(hongbao.ClassPermanent,
			"abandoned: %w", ctx.Err()) // ignored: the drain is over
	}})
	require.NoError(t, err)
	d.write(t, 1, records(0, 1, 3)...)
	cfg := d.config(a)
	cfg.DrainTimeout = 20 * time.Millisecond
	w := start(t, cfg)
	<-begun
	require.ErrorContains(t, w.stop(), "come again")
	require.Equal(t, Stats{Commits: 1}, w.Stats(), "no event is done, no dead letter is written, only the start is committed")
	require.Zero(t, d.committed(t, cfg.Group))
}

// Commits fail until CommitTimeout is over, and the worker continues without them. The next commit includes them.
func TestCommitErrors(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	d.write(t, 1, records(0, 1, 2)...)
	cfg := d.config(b.funcSink(t))
	cfg.CommitTimeout = 3 * time.Second
	fails := &atomic.Int64{}
	fails.Store(1 << 40)
	w := start(t, cfg, func(s *Subscriber) {
		commit := s.commit
		s.commit = func(g *kafka.Generation, partition int, at position) error {
			if fails.Add(-1) >= 0 {
				return kafka.NotCoordinatorForGroup
			}
			return commit(g, partition, at)
		}
	})
	testkit.Eventually(t, soon, func() bool { return w.Stats().CommitErrors == 2 }, "given up, at the start and then")
	fails.Store(2)
	d.write(t, 1, record(grant(0, 3)))
	testkit.Eventually(t, soon, func() bool { return w.Stats().Commits == 1 }, "at the third try")
	require.NoError(t, w.stop())
	again := start(t, d.config(b.funcSink(t)))
	d.write(t, 1, record(grant(0, 4)))
	testkit.Eventually(t, soon, func() bool { return again.Stats().Done == 1 }, "the new event")
	require.NoError(t, again.stop())
	require.Zero(t, again.Stats().Repeated)
}

// errorReader returns its errors, and then blocks until ctx ends.
type errorReader struct {
	recordReader
	errs []error
}

func (r *errorReader) FetchMessage(ctx context.Context) (kafka.Message, error) {
	if len(r.errs) > 0 {
		err := r.errs[0]
		r.errs = r.errs[1:]
		return kafka.Message{}, err
	}
	return r.recordReader.FetchMessage(ctx)
}

func TestReadErrorsAreWaitedOut(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	d.write(t, 1, record(grant(0, 1)))
	w := start(t, d.config(b.funcSink(t)), func(s *Subscriber) {
		open := s.newReader
		s.newReader = func(c *Config, partition int, offset int64) recordReader {
			return &errorReader{recordReader: open(c, partition, offset),
				errs: []error{kafka.LeaderNotAvailable, errors.New("dial: refused")}}
		}
	})
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1 }, "the record is read in the end")
	require.NoError(t, w.stop())
	require.EqualValues(t, 2, w.Stats().ReadErrors)
}

func TestFailingEventHoldsUpItsPartitionOnly(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 2), newBook()
	var fixed atomic.Bool
	b.fault = func(e *topic.Event) error {
		if e.Grant.Shard == 0 && !fixed.Load() {
			return hongbao.Outagef(hongbao.ClassTransient, "the page of shard 0 is down")
		}
		return nil
	}
	d.write(t, 2, records(0, 1, 3)...)
	w := start(t, d.config(b.funcSink(t)))
	testkit.Eventually(t, soon, func() bool { return w.Stats().Retries > 3 }, "shard 0 waits")
	for first := int64(1); first < 1000; first += 100 { // more events than any buffer holds
		d.write(t, 2, records(1, first, first+99)...)
	}
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1000 }, "shard 1 continues")
	fixed.Store(true)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1003 }, "and shard 0")
	require.NoError(t, w.stop())
}

// An effect hangs until its timeout. Its event becomes a dead letter, and other partitions are not delayed meanwhile.
func TestHangingEffectHasATimeLimit(t *testing.T) {
	t.Parallel()
	d := inProcess(t, 2)
	hangs, other := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a, err := NewFuncSink(FuncSinkConfig{Timeout: 20 * time.Millisecond, Effect: func(ctx context.Context, e topic.Event) error {
		switch e.Grant.EventID() {
		case "0-2":
			once.Do(func() { close(hangs); <-other }) // wait for the effect of the other partition
			<-ctx.Done()
			return ctx.Err()
		case "1-1":
			<-hangs
			close(other)
		}
		return nil
	}})
	require.NoError(t, err)
	d.write(t, 2, records(0, 1, 3)...)
	d.write(t, 2, records(1, 1, 1)...)
	w := start(t, d.config(a))
	testkit.Eventually(t, soon, func() bool { s := w.Stats(); return s.Done == 3 && s.Refused == 1 }, "all events but one")
	require.NoError(t, w.stop())
	dead := d.letters(t, 1)[0]
	require.Equal(t, reasonAttempts, letterHeader(dead, headerReason))
	require.Equal(t, "0-2", letterHeader(dead, "ce_id"))
	require.Contains(t, letterHeader(dead, headerError), "the effect did not end within 20ms")
}
