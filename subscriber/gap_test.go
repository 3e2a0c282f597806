package subscriber

import (
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The group's offset is not in the log. Run returns an error, and no event is skipped silently.
func TestOffsetOutOfRangeEndsRun(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	d.write(t, 1, records(0, 1, 3)...)
	cfg := d.config(b.funcSink(t))
	d.setOffset(t, cfg.Group, 1000)
	w := start(t, cfg)
	<-w.ended
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(w.err))
	require.ErrorIs(t, w.err, kafka.OffsetOutOfRange)
	require.ErrorContains(t, w.err, "--reset-offsets")
	require.Empty(t, b.copies())
}

// Records expired before the group read them. Run returns an error instead of continuing behind them, as kafka-go
// would.
func TestExpiredUnreadEndsRun(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	requireExpiredIsSeen(t, d, b)
}

func requireExpiredIsSeen(t *testing.T, d *kafkaFixture, b *effectLog) {
	t.Helper()
	d.write(t, 1, records(0, 1, 10)...)
	d.deleteBefore(t, 4)
	cfg := d.config(b.funcSink(t))
	d.setOffset(t, cfg.Group, 4)
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 6 }, "the remaining events")
	require.NoError(t, w.stop())
	d.write(t, 1, records(0, 11, 20)...)
	d.deleteBefore(t, 10) // the group has read all deleted records
	w = start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 10 }, "the next ten")
	require.NoError(t, w.stop())
	d.write(t, 1, records(0, 21, 30)...)
	d.deleteBefore(t, 23)
	w = start(t, cfg)
	<-w.ended
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(w.err))
	require.ErrorContains(t, w.err, "has come to offset 20, and the log begins at 23")
	require.ErrorContains(t, w.err, "--reset-offsets")
	require.Len(t, b.copies(), 16, "no event after the lost records was done")
	require.EqualValues(t, 20, d.committed(t, cfg.Group), "nor committed")
}

// An offset jumps between two records of a batch. That is an error if records have expired, but not if the log still
// has the skipped offsets, as with the marker of a transaction.
func TestJumps(t *testing.T) {
	t.Parallel()
	d := inProcess(t, 1)
	d.write(t, 1, records(0, 1, 10)...)
	d.deleteBefore(t, 5)
	cfg := d.config(lazySink{})
	for _, c := range []struct {
		next, first int64
		broken      bool
	}{{2, 5, true}, {4, 6, true}, {5, 5, false}, {5, 7, false}, {9, 6, false}} {
		w := &worker{session: &session{Subscriber: &Subscriber{cfg: cfg, log: newLogClient(&cfg)}}, at: position{next: c.next}}
		defer w.log.close()
		err := w.checkGap(t.Context(), []kafka.Message{{Offset: c.first}, {Offset: c.first + 1}})
		if !c.broken {
			require.NoError(t, err, c)
			require.Equal(t, c.first+2, w.at.next)
			continue
		}
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v: %v", c, err)
	}
}

// The broker does not answer where the log begins. No event is handled until it does.
func TestGapsAreAskedForUntilKnown(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 1), newBook()
	d.write(t, 1, record(grant(0, 1)))
	before := start(t, d.config(b.funcSink(t)))
	testkit.Eventually(t, soon, func() bool { return before.Stats().Done == 1 }, "the first")
	require.NoError(t, before.stop())
	d.write(t, 1, records(0, 2, 3)...)
	jump := func(s *Subscriber) { // the offset jumps, as after the marker of a transaction
		open := s.newReader
		s.newReader = func(c *Config, partition int, offset int64) recordReader { return open(c, partition, offset+1) }
	}
	var asked atomic.Int64
	d.broker.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		d.broker.KeepControl()
		if r, ok := req.(*kmsg.ListOffsetsRequest); !ok || r.Topics[0].Partitions[0].Timestamp != -2 ||
			len(r.Topics[0].Partitions) != 1 || asked.Add(1) > 3 {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.ErrorCode = 6 // not the leader
		res.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: d.topic,
			Partitions: []kmsg.ListOffsetsResponseTopicPartition{part}}}
		return res, nil, true
	})
	w := start(t, d.config(b.funcSink(t)), jump)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1 }, "after all")
	require.NoError(t, w.stop())
	require.Greater(t, asked.Load(), int64(3))
}
