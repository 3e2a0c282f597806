package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestFreshEntriesAreHandledOnceAndAcked(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	for shard := range 3 {
		b.add(t, shard, 1, 128, 3, 50)
	}
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	for shard := range 3 {
		b.idle(t, shard)
	}
	require.NoError(t, w.stop())
	s.onceEach(t, 3*182)
	require.Len(t, b.doneBits(t, 182), 182)
	require.EqualValues(t, 3*182, w.Stats().Done)
}

func TestGrantsReachTheHandlerWhole(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.reached(t, 8, 3)
	b.raw(t, testkit.Entry("grant", "rain", 7, 3, 1700000000123,
		"5 250 ann r1 00-abc-01\n6 1 bob - -")...)
	got := make(chan []hongbao.Grant, 1)
	start(t, b.config(t, "w", newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		got <- grants
		return nil
	})))
	grants := <-got
	require.Len(t, grants, 2)
	id := grants[0].EntryID
	at := time.UnixMilli(1700000000123).UTC()
	require.Equal(t, []hongbao.Grant{
		{Seq: 7, Epoch: 3, EntryID: id, Campaign: "rain", Packet: 5, Amount: 250, User: "ann", RequestID: "r1",
			Trace: "00-abc-01", Time: at},
		{Seq: 8, Epoch: 3, EntryID: id, Campaign: "rain", Packet: 6, Amount: 1, User: "bob", Time: at},
	}, grants)
}

func TestFailedGrantIsParkedAndItsNeighboursNeverComeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 3)
	open := make(chan struct{})
	s := newSink(failing(func(seq int64) error {
		if seq == 2 && !closed(open) {
			return hongbao.Errorf(hongbao.ClassTransient, "row is locked")
		}
		return nil
	}))
	cfg := b.config(t, "w", s)
	cfg.MaxAttempts, cfg.Backoff, cfg.MaxBackoff = 50, 5*time.Millisecond, 20*time.Millisecond
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { came, _ := s.times(2); return came >= 3 }, "tried again")
	require.Equal(t, []int64{1, 3}, b.doneBits(t, 3), "a done grant of a pending entry has its done bit")
	b.pending(t, 1)
	b.add(t, 0, 5)
	testkit.Eventually(t, soon, func() bool { return s.size() == 7 }, "other grants continue")
	close(open)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 8)
	for _, seq := range []int64{1, 3} {
		came, _ := s.times(seq)
		require.Equal(t, 1, came, "event %d was done at once and must not be delivered again", seq)
	}
	holder, _ := b.holder(t, ids[0])
	require.Empty(t, holder)
	require.Empty(t, b.dead(t))
}

func TestParkedEntryWaitsForItsBackoffAndKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1)
	s := newSink(failing(func(int64) error { return hongbao.Errorf(hongbao.ClassTransient, "not now") }))
	cfg := b.config(t, "w", s)
	cfg.Backoff, cfg.MaxBackoff = time.Hour, time.Hour
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Parked == 1 }, "parked")
	holder, count := b.holder(t, ids[0])
	require.Regexp(t, `^_retry/1/\d+$`, holder)
	require.EqualValues(t, 1, count, "attempts are the broker's count")
	b.add(t, 0, 20)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Parked == 2 }, "later entries are handled")
	require.NoError(t, w.stop())
	came, _ := s.times(1)
	require.Equal(t, 1, came, "its backoff is an hour")
}

func TestPermanentErrorIsADeadLetterAtOnceWithItsGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.reached(t, 3, 3)
	b.raw(t, testkit.Entry("grant", "rain", 1, 3, 1700000000123,
		"1 10 ann - -\n2 250 bob r1 00-abc-01\n3 1 cid - -")...)
	s := newSink(failing(func(seq int64) error {
		if seq == 2 {
			return hongbao.Errorf(hongbao.ClassPermanent, "no such account")
		}
		return nil
	}))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Equal(t, 1, s.numberOfCalls())
	require.Equal(t, []int64{1, 2, 3}, b.doneBits(t, 3))
	dead := b.dead(t)
	require.Len(t, dead, 1)
	require.NotEmpty(t, dead[0]["last"])
	require.NotEmpty(t, dead[0]["first"])
	for name, want := range map[string]string{
		"grant": "2 250 bob r1 00-abc-01", "seq": "2", "class": "permanent", "reason": "no such account", "attempts": "1",
		"group": group, "entry.3": "grant rain 2 3 1700000000123 -\n2 250 bob r1 00-abc-01",
	} {
		require.Equal(t, want, dead[0][name], name)
	}
	require.EqualValues(t, 1, w.Stats().Dead)
	require.EqualValues(t, 2, w.Stats().Done)
}

func TestConflictIsADeadLetterAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 1)
	s := newSink(failing(func(int64) error { return hongbao.Errorf(hongbao.ClassConflict, "another user has it") }))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Equal(t, 1, s.numberOfCalls())
	require.Equal(t, "conflict", b.dead(t)[0]["class"])
}

func TestDeadLetterAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	s := newSink(failing(func(seq int64) error {
		if seq != 2 {
			return nil
		}
		return errors.New("no class")
	}))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	came, _ := s.times(2)
	require.Equal(t, 4, came, "MaxAttempts is 4")
	dead := b.dead(t)
	require.Len(t, dead, 1)
	require.Equal(t, "4", dead[0]["attempts"])
	require.Equal(t, "unknown", dead[0]["class"])
	require.EqualValues(t, 3, w.Stats().Parked)
}

func TestOnePoisonGrantIn500CostsTheOthersNoAttempt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(n int) []error{
		"one error for all": func(n int) []error {
			errs, err := make([]error, n), hongbao.Errorf(hongbao.ClassUnknown, "statement failed")
			for i := range errs {
				errs[i] = err
			}
			return errs
		},
		"panic": func(int) []error { panic("index out of range") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			b.add(t, 0, repeat(50, 10)...)
			s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
				grants := batch.Grants
				for i := range grants {
					if grants[i].Seq == 321 {
						return fail(len(grants))
					}
				}
				return nil
			})
			w := start(t, b.config(t, "w", s))
			b.idle(t, 0)
			require.NoError(t, w.stop())
			s.onceEach(t, 499)
			dead := b.dead(t)
			require.Len(t, dead, 1)
			require.Equal(t, "321", dead[0]["seq"])
			require.Equal(t, "4", dead[0]["attempts"])
			require.EqualValues(t, 3, w.Stats().Parked, "only the entry with the poison grant was parked")
		})
	}
}

// uncomparable is an error of a type that can't be compared: == on two such errors panics.
type uncomparable []string

func (u uncomparable) Error() string { return fmt.Sprint([]string(u)) }

func TestUncomparableErrorsDoNoHarm(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 4)
	var tries int
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if tries++; tries > 1 {
			return nil
		}
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = uncomparable{"field a", "field b"}
		}
		return errs
	})
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
}

func TestBrokenAtTheEndIsTheErrorOfRun(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1)
	s := newSink(failing(func(int64) error { return hongbao.Errorf(hongbao.ClassBroken, "ledger of another deployment") }))
	w := start(t, b.config(t, "w", s))
	w.awaitHealth(0, ShardBroken)
	err := w.stop()
	holder, count := b.holder(t, ids[0])
	require.Equal(t, "_retry/0", holder)
	require.EqualValues(t, 0, count, "no attempt was taken")
	require.ErrorContains(t, err, "ledger of another deployment")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Empty(t, b.dead(t))
	require.EqualValues(t, 1, w.drained()["left"])
}

func TestBrokenInOneHalfKeepsTheOtherFromTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	var harm, after atomic.Bool
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if len(grants) == 2 {
			if harm.Load() {
				return nil
			}
			err := errors.New("batch failed")
			return []error{err, err}
		}
		if grants[0].Seq == 1 {
			harm.Store(true)
			return []error{hongbao.Errorf(hongbao.ClassBroken, "harm")}
		}
		after.Store(true)
		return nil
	})
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.True(t, harm.Load())
	require.False(t, after.Load(), "the other half was handled after a Broken error")
	s.onceEach(t, 2)
}

func TestWrongNumberOfErrorsBreaksTheShard(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 3)
	w := start(t, b.config(t, "w", newSink(func(context.Context, hongbao.Batch) []error { return make([]error, 2) })))
	w.awaitHealth(0, ShardBroken)
	err := w.stop()
	require.ErrorContains(t, err, "2 errors for 3 grants")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Empty(t, b.doneBits(t, 3), "it is unknown which grants are done")
	holder, count := b.holder(t, ids[0])
	require.Equal(t, "_retry/0", holder)
	require.Zero(t, count)
}

func TestHandlerThatTakesTooLongCostsAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1)
	cfg := b.config(t, "w", newSink(func(ctx context.Context, _ hongbao.Batch) []error {
		<-ctx.Done()
		return []error{ctx.Err()}
	}))
	cfg.HandleTimeout, cfg.Backoff, cfg.MaxBackoff = 30*time.Millisecond, time.Hour, time.Hour
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Parked == 1 }, "parked")
	holder, count := b.holder(t, ids[0])
	require.Regexp(t, `^_retry/1/\d+$`, holder)
	require.EqualValues(t, 1, count)
	require.NoError(t, w.stop())
}

// If another live worker has the claim on a grant, the entry waits as long as needed and loses no attempt.
func TestHeldGrantsLoseNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1, 2)
	const waits = 9 // MaxAttempts is 4
	var seen atomic.Int64
	s := newSink(failing(func(seq int64) error {
		if seq != 3 && seen.Add(1) <= 2*waits {
			return hongbao.Waitingf("a live worker has event 0-%d", seq)
		}
		return nil
	}))
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return seen.Load() > waits }, "the grants are retried again and again")
	for _, id := range ids {
		if holder, count := b.holder(t, id); strings.HasPrefix(holder, "_retry") {
			require.Zero(t, count, "while it is parked")
		}
	}
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Empty(t, b.dead(t))
	s.onceEach(t, 3)
	require.GreaterOrEqual(t, w.Stats().Parked, int64(waits))
}

func TestHeldGrantBesideOneThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	var held atomic.Int64
	s := newSink(failing(func(seq int64) error {
		switch {
		case seq == 1:
			return hongbao.Errorf(hongbao.ClassTransient, "not now")
		case held.Add(1) <= 6:
			return hongbao.Waitingf("a live worker has event 0-%d", seq)
		}
		return nil
	}))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	came, _ := s.times(1)
	require.Equal(t, 4, came, "MaxAttempts is 4")
	require.Len(t, b.dead(t), 1)
	came, did := s.times(2)
	require.Equal(t, 7, came)
	require.Equal(t, 1, did)
}
