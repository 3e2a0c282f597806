package publisher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao"
)

var decided = time.Date(2026, 11, 21, 8, 0, 0, 123e6, time.UTC)

// requireClass checks that every grant got an error of the class.
func requireClass(t testing.TB, errs []error, n int, class hongbao.Class, outage bool) {
	t.Helper()
	require.Len(t, errs, n)
	for _, err := range errs {
		require.Error(t, err)
		require.Equal(t, class, hongbao.ClassOf(err), "%v", err)
		require.Equal(t, outage, hongbao.IsOutage(err), "%v", err)
	}
}

func TestHandlePublishesEachGrantOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	first := b.store.grants(0, 250, decided)
	second := b.store.grants(2, 10, decided) // same partition, own order
	third := b.store.grants(1, 1, decided)
	require.Nil(t, p.Handle(t.Context(), first))
	require.Nil(t, p.Handle(t.Context(), second))
	require.Nil(t, p.Handle(t.Context(), third))
	require.Nil(t, p.Handle(t.Context(), first), "a second time it is done already")
	require.Nil(t, p.Handle(t.Context(), append(first[240:250:250], b.store.grants(0, 5, decided)...)), "a part is done already")
	all := b.store.shard(0).entries
	requireOneCopy(t, &b.cfg, all[0].Grants, all[1].Grants, second, third)
	s := p.Stats()
	require.EqualValues(t, 6, s.Sessions, "one producer id a partition, and a fresh one after each claim that was not granted")
	require.EqualValues(t, 266, s.Grants)
	require.Zero(t, s.TakenOver)
}

func TestHandleTakesAGrantTwiceInOneCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 3, decided)
	require.Nil(t, p.Handle(t.Context(), []hongbao.Grant{g[2], g[0], g[0], g[1], g[2]}))
	requireOneCopy(t, &b.cfg, g)
}

func TestUndecidedAnswers(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]fate{
		"lost":           {lost},
		"swallowed":      {swallow},
		"twice":          {swallow, swallow},
		"lost, swallow":  {lost, swallow},
		"late copy":      {deferred},
		"two late":       {deferred, deferred},
		"swallow, late":  {swallow, deferred},
		"late, swallow":  {deferred, swallow},
		"lost and again": {lost, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			w.fate = fates(list...)
			g := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), g))
			more := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), more))
			w.flush(t)
			require.Equal(t, len(list), w.fired)
			require.EqualValues(t, len(list), p.Stats().Resends)
			requireOneCopy(t, &b.cfg, g, more)
		})
	}
}

func TestOutageKeepsTheClaimAndDropsTheSession(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"never sent": lost, "appended": swallow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			g := b.store.grants(0, 20, decided)
			w.fate = func() fate { return f }
			requireClass(t, p.Handle(t.Context(), g), 20, hongbao.Unknown, true)
			require.Positive(t, w.fired)
			require.Equal(t, 1, b.store.open(0))
			require.Nil(t, p.slots[0].session)
			w.fate = nil
			other := b.store.grants(2, 20, decided) // another shard on the partition, before the first is settled
			require.Nil(t, p.Handle(t.Context(), other))
			require.Nil(t, p.Handle(t.Context(), g))
			require.Zero(t, b.store.open(0))
			require.EqualValues(t, 1, p.Stats().SentAgain)
			requireOneCopy(t, &b.cfg, g, other)
		})
	}
}

// The danger that the session rule is for: a claim is taken over and finished under the session's sequence, while its owner lives. Going
// on with that sequence, the owner's next batch of the same size would be dropped as a copy: a lost event.
func TestSessionIsAbandonedWhenAClaimWasTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	other, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), b.store.grants(0, 20, decided)))
	g := b.store.grants(0, 20, decided)
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost } // the lease is lost; nothing was sent
	requireClass(t, p.Handle(ctx, g), 20, hongbao.Unknown, false)
	w.fate = nil
	require.Nil(t, other.Handle(t.Context(), g), "the successor uses the sequence up")
	next := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), next))
	requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g, next)
}

// The same danger without the rule: it shows that the test above can fail.
func TestWithoutTheSessionRuleAnEventIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	other, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), b.store.grants(0, 20, decided)))
	g := b.store.grants(0, 20, decided)
	kept := *p.slots[0].session
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost }
	requireClass(t, p.Handle(ctx, g), 20, hongbao.Unknown, false)
	w.fate = nil
	require.Nil(t, other.Handle(t.Context(), g))
	p.slots[0].session = &kept // what the rule forbids
	next := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), next), "and nobody notices")
	content := topicContent(t, &b.cfg)
	require.Empty(t, content[next[0].EventID()])
}

func TestEveryFailureOfTheClaimsDropsTheSession(t *testing.T) {
	t.Parallel()
	down := hongbao.Errorf(hongbao.Unknown, "redis is away")
	for name, c := range map[string]struct {
		op    string
		after bool
	}{
		"claim not made": {"claim", false}, "claim made, answer lost": {"claim", true},
		"complete not made": {"complete", false}, "complete made, answer lost": {"complete", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, _ := b.worker(t)
			fired := 0
			b.store.fault = func(op string) (error, error) {
				if op != c.op || fired > 0 {
					return nil, nil
				}
				fired++
				if c.after {
					return nil, down
				}
				return down, nil
			}
			g := b.store.grants(0, 20, decided)
			requireClass(t, p.Handle(t.Context(), g), 20, hongbao.Unknown, false)
			require.Equal(t, 1, fired)
			require.Nil(t, p.slots[0].session)
			other := b.store.grants(2, 20, decided)
			require.Nil(t, p.Handle(t.Context(), other))
			require.Nil(t, p.Handle(t.Context(), g))
			requireOneCopy(t, &b.cfg, g, other)
		})
	}
}

func TestTakeoverWhileTheOwnerIsPausedBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, _ := b.worker(t)
	other, _ := b.worker(t)
	g := b.store.grants(0, 20, decided)
	took := false
	b.store.granted = func(hongbao.Claim) { // the owner stands still here
		if took {
			return
		}
		took = true
		require.Nil(t, other.Handle(t.Context(), g))
	}
	require.Nil(t, owner.Handle(t.Context(), g), "its late copy is dropped by the broker, its complete is fenced")
	require.True(t, took)
	require.EqualValues(t, 1, owner.Stats().Lost)
	require.EqualValues(t, 1, other.Stats().SentAgain)
	next := b.store.grants(0, 20, decided)
	require.Nil(t, owner.Handle(t.Context(), next))
	requireOneCopy(t, &b.cfg, g, next)
}

// twice runs the claim script twice and gives the second answer, as go-redis does when the first answer is lost.
type twice struct {
	*store
	n int
}

func (s *twice) Claim(ctx context.Context, shard int, id string, events []hongbao.SeqRange, payload string) (hongbao.ClaimAnswer, error) {
	a, err := s.store.Claim(ctx, shard, id, events, payload)
	if s.n--; s.n < 0 {
		return a, err
	}
	return s.store.Claim(ctx, shard, id, events, payload)
}

// The claim that the first run stored is finished under the session's sequence, which must not be used again then: the
// broker would drop the next batch of the same size as a copy.
func TestClaimRunTwiceUsesUpTheSequence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := &twice{store: b.store}
	p, err := New(b.cfg, c, b.store)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	g0, g1, g2 := b.store.grants(0, 1, decided), b.store.grants(0, 1, decided), b.store.grants(0, 1, decided)
	require.Nil(t, p.Handle(t.Context(), g0))
	c.n = 1
	require.Nil(t, p.Handle(t.Context(), g1))
	require.Nil(t, p.Handle(t.Context(), g2))
	requireOneCopy(t, &b.cfg, g0, g1, g2)
}

func TestHeldClaimsAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	g := b.store.grants(0, 3, decided)
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost }
	requireClass(t, p.Handle(ctx, g), 3, hongbao.Unknown, false)
	w.fate = nil
	b.store.held = 1
	requireClass(t, p.Handle(t.Context(), g), 3, hongbao.Transient, false)
	require.Nil(t, p.slots[0].session, "an answer to a repeated call can't tell that nothing was claimed")
}

func TestNothingIsSentAfterTheLeaseOrTheClaimIsTooOld(t *testing.T) {
	t.Parallel()
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, w := b.worker(t)
		require.Nil(t, p.Handle(t.Context(), b.store.grants(0, 1, decided)))
		w.fate = fates()
		ctx, cancel := context.WithCancel(t.Context())
		b.store.granted = func(hongbao.Claim) { cancel() }
		requireClass(t, p.Handle(ctx, b.store.grants(0, 2, decided)), 2, hongbao.Unknown, false)
		require.Zero(t, w.sends)
		require.Equal(t, 1, b.store.open(0))
	})
	t.Run("age", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, w := b.worker(t)
		w.fate = fates()
		b.store.granted = func(hongbao.Claim) { // the process sleeps
			p.now = func() time.Time { return time.Now().Round(0).Add(p.cfg.MaxClaimAge + time.Second) }
		}
		requireClass(t, p.Handle(t.Context(), b.store.grants(0, 2, decided)), 2, hongbao.Unknown, false)
		require.Zero(t, w.sends)
		require.EqualValues(t, 1, p.Stats().Stale)
		require.Nil(t, p.slots[0].session)
	})
}

func TestTooLargeBatchesAreHalved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	g := b.store.grants(0, 64, decided)
	poison := "u37"
	w.answer = refuseKey(poison, kafka.InvalidRecord)
	errs := p.Handle(t.Context(), g)
	require.Len(t, errs, 64)
	for i, err := range errs {
		if g[i].User != poison {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, hongbao.Permanent, hongbao.ClassOf(err))
		require.ErrorIs(t, err, kafka.InvalidRecord)
	}
	require.EqualValues(t, 1, p.Stats().Sessions, "a definite refusal does not use the sequence up")
	requireOneCopy(t, &b.cfg, g[:36], g[37:])
	require.Zero(t, b.store.open(0))
}

func TestRealSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "9000"}))
	p, _ := b.worker(t)
	g := b.store.grants(0, 100, decided)
	require.Nil(t, p.Handle(t.Context(), g))
	require.Positive(t, p.Stats().Refused)
	requireOneCopy(t, &b.cfg, g)
}

func TestRefusalAfterAnUndecidedAnswerIsNotTrusted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	g := b.store.grants(0, 8, decided)
	w.fate = fates(swallow)
	n := 0
	w.answer = func(r kafka.Request) error {
		if _, ok := r.(*rawproduce.Request); ok {
			if n++; n == 2 {
				return kafka.MessageSizeTooLarge
			}
		}
		return nil
	}
	requireClass(t, p.Handle(t.Context(), g), 8, hongbao.Unknown, true)
	require.Equal(t, 1, b.store.open(0), "the batch is in the log: the claim must not be released")
	require.Nil(t, p.Handle(t.Context(), g))
	requireOneCopy(t, &b.cfg, g)
}

func TestSinkWideRefusals(t *testing.T) {
	t.Parallel()
	for _, code := range []kafka.Error{kafka.TopicAuthorizationFailed, kafka.InvalidTimestamp, kafka.UnknownTopicOrPartition} {
		t.Run(code.Title(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			w.answer = func(r kafka.Request) error {
				if _, ok := r.(*rawproduce.Request); ok {
					return code
				}
				return nil
			}
			g := b.store.grants(0, 8, decided)
			errs := p.Handle(t.Context(), g)
			requireClass(t, errs, 8, hongbao.Broken, false)
			require.ErrorIs(t, errs[0], code)
			require.Zero(t, b.store.open(0), "nothing was appended")
			w.answer = nil
			require.Nil(t, p.Handle(t.Context(), g))
			requireOneCopy(t, &b.cfg, g)
		})
	}
}

func TestBrokerIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.AttemptTime = hopeless
	p, w := b.worker(t)
	w.answer = func(kafka.Request) error { return errWire }
	g := b.store.grants(0, 8, decided)
	requireClass(t, p.Handle(t.Context(), g), 8, hongbao.Transient, true)
	require.Zero(t, b.store.open(0), "without a producer id nothing is claimed")
}

func TestInadmissibleGrants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 9, decided)
	bad := append([]hongbao.Grant(nil), g...)
	bad[0].User = "a b"
	bad[1].EntryID = ""
	bad[2].Campaign = `c"`
	bad[3].Amount = -1
	bad[4].Seq = 0
	bad[5].Time = time.Time{}
	bad[6].Trace = "\n"
	bad[7].Shard = 1
	errs := p.Handle(t.Context(), bad)
	requireClass(t, errs[:8], 8, hongbao.Permanent, false)
	require.NoError(t, errs[8])
	requireOneCopy(t, &b.cfg, g[8:])
}

// refuseKey answers code to every batch that holds a record with the key.
func refuseKey(key string, code kafka.Error) func(kafka.Request) error {
	return func(r kafka.Request) error {
		produce, ok := r.(*rawproduce.Request)
		if ok && holdsKey(produce, key) {
			return code
		}
		return nil
	}
}

func TestErrorTable(t *testing.T) {
	t.Parallel()
	want := map[verdict][]kafka.Error{
		lookBack: {45, 46, 59},
		fenced:   {47, 90},
		tooMuch:  {10, 18, 87},
		refused:  {17, 21, 29, 31, 32, 35, 40, 42, 43, 44, 76},
		absent:   {3, 100, 103},
	}
	listed := map[kafka.Error]verdict{}
	for v, codes := range want {
		for _, c := range codes {
			listed[c] = v
		}
	}
	for code := kafka.Error(-1); code <= 140; code++ {
		if code == 0 {
			continue
		}
		require.Equal(t, listed[code], verdictOf(code), "code %d", code) // not listed: again
	}
	require.Equal(t, again, verdictOf(errors.New("anything")))
	require.Equal(t, again, verdictOf(context.Canceled))
	require.Equal(t, appended, verdictOf(nil))
}
