package publish

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

func TestScanCountsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 150, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	foreign := strangers(t, b)
	cfg := b.cfg
	cfg.Deployment = "d2"
	other, err := New(cfg, newStore(), newStore())
	require.NoError(t, err)
	defer other.Close()
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(newStore().grants(1, 3, decided))))
	headers, value := messageOf(t, &g[0])
	writeBroken(t, b, headers[:8], g[0].User, value) // the last header is missing

	var seen []hongbao.Grant
	report, err := p.Scan(t.Context(), nil, func(at Position, e topic.Event) error {
		require.Zero(t, at.Partition)
		require.WithinDuration(t, time.Now(), at.Time, time.Minute)
		require.EqualValues(t, 1+len(seen), at.Offset, "offset 0 has the session's own record")
		seen = append(seen, e.Grant)
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 150, report.Events)
	require.EqualValues(t, foreign+1+3, report.Foreign, "including the other deployment's session record")
	require.EqualValues(t, 1, report.Malformed)
	require.ErrorContains(t, report.FirstMalformed, "offset ")
	for i := range seen {
		seen[i].EntryID = g[i].EntryID
	}
	require.Equal(t, g, seen)

	again, err := p.Scan(t.Context(), report.Next,
		func(Position, topic.Event) error { return errors.New("not reached") })
	require.NoError(t, err)
	require.Zero(t, again.Events+again.Foreign+again.Malformed)
	more := b.store.grants(0, 2, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(more)))
	var n atomic.Int64
	_, err = p.Scan(t.Context(), report.Next, func(Position, topic.Event) error { n.Add(1); return nil })
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Load())
}

func writeBroken(t *testing.T, b *bench, headers []kgoHeader, key string, value []byte) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...), kgo.DefaultProduceTopic(b.cfg.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer c.Close()
	r := &kgo.Record{Key: []byte(key), Value: value}
	for _, h := range headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	require.NoError(t, c.ProduceSync(t.Context(), r).FirstErr())
}

func TestScanHaltsOutsideTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 10, decided))))
	fn := func(Position, topic.Event) error { return nil }
	_, err := p.Scan(t.Context(), []int64{12, 0}, fn)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "beyond the end: %v", err)
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, 6))
	_, err = p.Scan(t.Context(), []int64{5, 0}, fn)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "before the start: %v", err)
	report, err := p.Scan(t.Context(), []int64{6, 0}, fn)
	require.NoError(t, err)
	require.EqualValues(t, 5, report.Events)
	_, err = p.Scan(t.Context(), []int64{0}, fn)
	require.Error(t, err)
}

func TestScanEndsWithTheErrorOfItsReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 10, decided))))
	enough := errors.New("enough")
	n := 0
	_, err := p.Scan(t.Context(), nil, func(Position, topic.Event) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
	require.Equal(t, 3, n)
}
