package subscriber

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// forgetOffsets deletes the group's offset of partition 0, as the broker does after offsets.retention.minutes.
func (d *kafkaFixture) forgetOffsets(t testing.TB, group string) {
	t.Helper()
	client, done := d.client()
	defer done()
	testkit.Eventually(t, soon, func() bool { // until the last member has left
		res, err := client.OffsetDelete(t.Context(),
			&kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{d.topic: {0}}})
		return err == nil && res.Error == nil && res.Topics[d.topic][0].Error == nil
	}, "the offset is deleted")
	require.EqualValues(t, -1, d.committed(t, group))
}

// old returns the records with a time of some hours ago.
func old(list []kafka.Message, hours int) []kafka.Message {
	for i := range list {
		list[i].Time = time.Now().Add(-time.Duration(hours) * time.Hour)
	}
	return list
}

// onBoth runs a test on the in-process broker and on Apache Kafka.
func onBoth(t *testing.T, fn func(t *testing.T, d *kafkaFixture)) {
	t.Helper()
	t.Parallel()
	t.Run("in process", func(t *testing.T) { t.Parallel(); fn(t, inProcess(t, 1)) })
	t.Run("Apache Kafka", func(t *testing.T) { t.Parallel(); fn(t, real(t, testkit.Kafka(t), 1)) })
}

// requireMissed checks that Run has ended because it may have missed events.
func requireMissed(t testing.TB, w *running, parts ...string) {
	t.Helper()
	testkit.Eventually(t, soon, func() bool {
		select {
		case <-w.ended:
			return true
		default:
			return false
		}
	}, "Run ends")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(w.err), "%v", w.err)
	for _, part := range append(parts, "--reset-offsets") {
		require.ErrorContains(t, w.err, part)
	}
}

// A group was away for longer than its offsets live, and events that it had not read have expired meanwhile. Run does
// not take it for a new group.
func TestKafkaAwayForLongerThanTheOffsets(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b := newBook()
		cfg := d.config(b.funcSink(t))
		d.write(t, 1, old(records(0, 1, 10), 200)...)
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 10 }, "the first ten")
		require.NoError(t, w.stop())
		d.write(t, 1, old(records(0, 11, 20), 20)...)
		d.deleteBefore(t, 15)
		d.forgetOffsets(t, cfg.Group)
		w = start(t, cfg)
		requireMissed(t, w, "has no committed offset", "begins at 15", "Config.Since")
		require.Len(t, b.copies(), 10, "no event after the lost ones was done")
		require.EqualValues(t, -1, d.committed(t, cfg.Group), "and the next Run says so again")
		cfg.Since = time.Now().Add(-100 * time.Hour) // it owes some of the expired events
		requireMissed(t, start(t, cfg), "Config.Since")

		// A person has decided: they set the offset.
		d.setOffset(t, cfg.Group, 15)
		w = start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 5 }, "the remaining events")
		require.NoError(t, w.stop())
	})
}

// A new group's configuration says since when it owes grants. It owes none of the expired ones. From its first start on
// it is not new any more, although it has read nothing.
func TestKafkaSince(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b := newBook()
		cfg := d.config(b.funcSink(t))
		d.write(t, 1, old(records(0, 1, 10), 200)...)
		d.deleteBefore(t, 10)
		cfg.Since = time.Now().Add(-100 * time.Hour)
		requireMissed(t, start(t, cfg), "has no committed offset", "begins at 10") // the log is empty
		cfg.Since = time.Now().Add(time.Hour)
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return d.committed(t, cfg.Group) == 10 }, "the start is committed")
		require.NoError(t, w.stop())
		d.write(t, 1, old(records(0, 11, 20), 50)...)
		d.deleteBefore(t, 12)
		requireMissed(t, start(t, cfg), "has come to offset 10, and the log begins at 12")
		d.forgetOffsets(t, cfg.Group)
		cfg.Since = time.Now().Add(-40 * time.Hour)
		w = start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 8 }, "older events than Since are read, too")
		require.NoError(t, w.stop())
	})
}

// A group has read nothing of an empty log that begins at 0. Events come and expire while it is away.
func TestAwayBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	d := inProcess(t, 1)
	cfg := d.config(newBook().funcSink(t))
	cfg.Since = time.Now().Add(-100 * time.Hour)
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return d.committed(t, cfg.Group) == 0 }, "the start is committed")
	require.NoError(t, w.stop())
	d.write(t, 1, old(records(0, 1, 10), 200)...)
	d.deleteBefore(t, 5)
	requireMissed(t, start(t, cfg), "has come to offset 0, and the log begins at 5")
}

// The events expired, and no later ones came. Run says so at once.
func TestExpiredUnreadInAnIdleTopic(t *testing.T) {
	t.Parallel()
	d := inProcess(t, 1)
	cfg := d.config(newBook().funcSink(t))
	d.setOffset(t, cfg.Group, 0)
	d.write(t, 1, records(0, 1, 10)...)
	d.deleteBefore(t, 10)
	requireMissed(t, start(t, cfg), "has come to offset 0, and the log begins at 10")
}

// NewSQL's database knows where the group was, after Kafka has forgotten it.
func TestSQLKnowsWhereTheGroupWas(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "grants"), kfake.SeedTopics(1, "graves"))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		d := &kafkaFixture{addr: c.ListenAddrs()[0], topic: "grants", burial: "graves", broker: c}
		cfg := d.config(db.sink(t, nil))
		d.write(t, 1, old(records(0, 1, 10), 200)...)
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 10 }, "the first ten")
		require.NoError(t, w.stop())
		d.write(t, 1, old(records(0, 11, 20), 100)...)
		d.deleteBefore(t, 8)
		d.forgetOffsets(t, cfg.Group)
		w = start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 10 }, "nothing is missing")
		require.NoError(t, w.stop())
		require.Zero(t, w.Stats().Repeated, "it begins where it was")

		d.write(t, 1, records(0, 21, 30)...)
		d.deleteBefore(t, 23)
		d.forgetOffsets(t, cfg.Group)
		requireMissed(t, start(t, cfg), "has come to offset 20, and the log begins at 23")
		cfg.Group = "another"
		requireMissed(t, start(t, cfg), "group another has no committed offset")
	})
}
