package publish

import (
	"context"
	"errors"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

func TestTooLargeBatchesAreHalved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	g := b.store.grants(0, 64, decided)
	poison := "u37"
	w.answer = refuseKey(poison, kafka.InvalidRecord)
	errs := p.Handle(t.Context(), testkit.Batch(g))
	require.Len(t, errs, 64)
	for i, err := range errs {
		if g[i].User != poison {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		require.ErrorIs(t, err, kafka.InvalidRecord)
	}
	require.EqualValues(t, 1, p.Stats().Sessions, "a definite refusal does not use the sequence")
	requireOneCopy(t, &b.cfg, g[:36], g[37:])
	require.Zero(t, b.store.open(0))
}

// The broker refuses every grant, even alone. The result of the probe then decides the error: no grant gets a
// Permanent error.
func TestLoneRefusalWaitsForAProbe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe  error // the result of the probe; grants get InvalidRecord
		class  hongbao.Class
		outage bool
	}{
		"refused too": {kafka.InvalidRecord, hongbao.ClassBroken, false},
		"too large":   {kafka.MessageSizeTooLarge, hongbao.ClassBroken, false},
		"denied":      {kafka.TopicAuthorizationFailed, hongbao.ClassBroken, false},
		"no answer":   {errWire, hongbao.ClassUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			p.cfg.AttemptTime = hopeless
			probes := 0
			w.answer = func(r kafka.Request) error {
				produce, ok := r.(*rawproduce.Request)
				switch {
				case !ok:
					return nil
				case contains(produce, []byte(cloudevent.TypeGrant)):
					return kafka.InvalidRecord
				}
				probes++
				return c.probe
			}
			g := b.store.grants(0, 4, decided)
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 4, c.class, c.outage)
			require.Positive(t, probes)
			require.Zero(t, b.store.open(0), "all claims were released")
			w.answer = nil
			p.cfg.AttemptTime = b.cfg.AttemptTime
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			requireOneCopy(t, &b.cfg, g)
		})
	}
}

// The topic's limit was lowered below the size of a grant. No grant is at fault, so none becomes a dead letter.
func TestALimitBelowOneGrantIsBroken(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"250", "340"} { // a session can be announced, and no grant fits
		b := setup(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": limit}))
		p, _ := b.worker(t)
		g := b.store.grants(0, 4, decided)
		requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 4, hongbao.ClassBroken, false)
		require.Positive(t, p.Stats().Refused)
		require.Zero(t, b.store.open(0), "all claims were released")
	}
}

// The probe is about as large as the largest grant.
func TestTheProbeIsAsLargeAsAnyGrant(t *testing.T) {
	t.Parallel()
	b := newBatch("hongbao/deployment")
	b.start(numbers{}, 0)
	g := largestGrant
	g.User, g.Code = strings.Repeat("a", hongbao.MaxIDLength), ""
	require.True(t, b.add(&g, 1<<20))
	plain := len(b.finish())
	b.start(numbers{}, 0)
	b.addProbe(numbers{}, 0)
	probe := len(b.finish())
	require.Greater(t, probe, plain)
	b.start(numbers{}, 0)
	require.True(t, b.add(&largestGrant, 1<<20))
	require.InDelta(t, len(b.finish()), probe, 4)
}

func TestRealSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "9000"}))
	p, _ := b.worker(t)
	g := b.store.grants(0, 100, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
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
	requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 8, hongbao.ClassUnknown, true)
	require.Equal(t, 1, b.store.open(0), "the batch is in the log: the claim must not be released")
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	requireOneCopy(t, &b.cfg, g)
}

func TestSinkWideRefusals(t *testing.T) {
	t.Parallel()
	for _, code := range []kafka.Error{kafka.TopicAuthorizationFailed, kafka.InvalidTimestamp,
		kafka.UnknownTopicOrPartition} {
		t.Run(code.Title(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.AttemptTime = hopeless // a missing topic is retried for this time, which must be below MaxClaimAge
			p, w := b.worker(t)
			w.answer = func(r kafka.Request) error {
				if _, ok := r.(*rawproduce.Request); ok {
					return code
				}
				return nil
			}
			g := b.store.grants(0, 8, decided)
			errs := p.Handle(t.Context(), testkit.Batch(g))
			requireClass(t, errs, 8, hongbao.ClassBroken, false)
			require.ErrorIs(t, errs[0], code)
			require.Zero(t, b.store.open(0), "nothing was appended")
			w.answer = nil
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
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
	requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 8, hongbao.ClassTransient, true)
	require.Zero(t, b.store.open(0), "nothing is claimed without a producer id")
}

func TestInadmissibleGrants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 8, decided)
	bad := append([]hongbao.Grant(nil), g...)
	bad[0].User = "a b"
	bad[1].EntryID = ""
	bad[2].Campaign = `c"`
	bad[3].Amount = -1
	bad[4].Seq = 0
	bad[5].Time = time.Time{}
	bad[6].Trace = "\n"
	errs := p.Handle(t.Context(), testkit.BatchIn(1, bad))
	requireClass(t, errs[:7], 7, hongbao.ClassPermanent, false)
	require.NoError(t, errs[7])
	requireOneCopy(t, &b.cfg, g[7:])

	bad[7].Shard = 1
	requireClass(t, p.Handle(t.Context(), testkit.BatchIn(1, bad)), 8, hongbao.ClassBroken, false)
	requireOneCopy(t, &b.cfg, g[7:])
}

// refuseKey returns an answer function that returns code for every batch with this record key.
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
	want := map[sendOutcome][]kafka.Error{
		lookBack: {45, 46, 59},
		fenced:   {47, 90},
		tooMuch:  {10, 18, 44, 87},
		refused:  {17, 21, 29, 31, 32, 35, 40, 42, 43, 76},
		absent:   {3, 100, 103},
	}
	listed := map[kafka.Error]sendOutcome{}
	for v, codes := range want {
		for _, c := range codes {
			listed[c] = v
		}
	}
	for code := kafka.Error(-1); code <= 140; code++ {
		if code == 0 {
			continue
		}
		require.Equal(t, listed[code], outcomeOf(code), "code %d", code) // not listed: again
	}
	require.Equal(t, again, outcomeOf(errors.New("anything")))
	require.Equal(t, again, outcomeOf(context.Canceled))
	require.Equal(t, appended, outcomeOf(nil))
}
