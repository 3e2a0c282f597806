package publish

import (
	"errors"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

// writeAt writes one record for each grant to partition 0. times are the record times, used in turn.
func writeAt(t *testing.T, b *bench, grants []hongbao.Grant, times ...time.Time) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...), kgo.DefaultProduceTopic(testTopic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer c.Close()
	records := make([]*kgo.Record, len(grants))
	for i := range grants {
		headers, value := messageOf(t, &grants[i])
		records[i] = &kgo.Record{Key: []byte(grants[i].User), Value: value, Timestamp: times[i%len(times)]}
		for _, h := range headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	require.NoError(t, c.ProduceSync(t.Context(), records...).FirstErr())
}

// Scan derives from the times of a partition's first records since when the partition is complete. It ignores the seqs:
// a batch that is sent again keeps its old time, and a requeued grant may be written late.
func TestScanTellsSinceWhenTheLogIsWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	since := func() []time.Time {
		report, err := p.Scan(t.Context(), nil, func(Position, topic.Event) error { return nil })
		require.NoError(t, err)
		require.Len(t, report.Since, b.cfg.Partitions)
		require.Zero(t, report.Since[1], "no record of the other partition has expired")
		later, err := p.Scan(t.Context(), report.Next, func(Position, topic.Event) error {
			return errors.New("there is nothing to read")
		})
		require.NoError(t, err)
		if report.Events > 0 {
			require.Equal(t, report.Since, later.Since, "a scan that begins later finds the same times")
		}
		return report.Since
	}
	begin := time.Now().Add(-48 * time.Hour).Truncate(time.Millisecond)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	g := b.store.grants(0, 1_300, decided)
	writeAt(t, b, g[1_200:], at(1))      // will expire, although its seqs are the highest
	writeAt(t, b, g[:100], at(5), at(3)) // half of them with an older time, as after a retry
	for i := 100; i < 900; i += 50 {
		writeAt(t, b, g[i:i+50], at(4))
	}
	require.Zero(t, since()[0], "nothing has expired")
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, 100))
	require.Equal(t, at(5).Add(stream.ClockSkew), since()[0].Local())
	strangers(t, b) // their times must not count
	require.Equal(t, at(5).Add(stream.ClockSkew), since()[0].Local())
	writeAt(t, b, g[900:1_000], at(6))
	require.Equal(t, at(6).Add(stream.ClockSkew), since()[0].Local(), "the new records are among the first thousand")
	writeAt(t, b, g[1_000:1_100], at(7))
	require.Equal(t, at(6).Add(stream.ClockSkew), since()[0].Local(), "the new records come after the first thousand")

	bounds, err := p.ends(t.Context(), 0)
	require.NoError(t, err)
	e, found, err := p.At(t.Context(), 0, bounds.end-1)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, g[1_099].Seq, e.Grant.Seq)
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, bounds.end))
	_, found, err = p.At(t.Context(), 0, bounds.end-1)
	require.NoError(t, err)
	require.False(t, found, "it has expired")
	require.WithinDuration(t, time.Now().Add(stream.ClockSkew), since()[0], 30*time.Second, "no record is left")
}

// A batch is sent again after ten hours, with its old time, and later the log begins with it. Its times do not show what
// has expired since, so Scan also looks at the batches after it.
func TestScanOfALogThatBeginsWithABatchSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const many = firstEvents + 200
	b.cfg.BatchGrants, b.cfg.BatchBytes = many, 1<<20
	old, _ := b.worker(t)
	fresh, _ := b.worker(t)
	at := func(p *Publisher, ago time.Duration) time.Time {
		now := time.Now().Add(-ago).Truncate(time.Millisecond)
		p.now = func() time.Time { return now }
		return now
	}
	g := b.store.grants(0, many+20, decided)
	at(old, 10*time.Hour)
	require.Nil(t, old.Handle(t.Context(), testkit.Batch(g[:1])))
	at(fresh, time.Hour)
	require.Nil(t, fresh.Handle(t.Context(), testkit.Batch(g[1:10])))
	bounds, err := old.ends(t.Context(), 0)
	require.NoError(t, err)
	require.Nil(t, old.Handle(t.Context(), testkit.Batch(g[10:many+10])))
	require.EqualValues(t, 2, old.Stats().Batches, "it is one batch")
	last := at(fresh, time.Minute)
	require.Nil(t, fresh.Handle(t.Context(), testkit.Batch(g[many+10:])))
	require.NoError(t, b.broker.DeleteRecords(testTopic, 0, bounds.end))

	report, err := old.Scan(t.Context(), nil, func(Position, topic.Event) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, many+10, report.Events)
	require.Equal(t, last.Add(stream.ClockSkew), report.Since[0].Local())
}
