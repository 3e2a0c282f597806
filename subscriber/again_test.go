package subscriber

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// makeAgain deletes the topic and creates it again. On Apache Kafka this deletes the groups' offsets of the topic, too.
func (d *kafkaFixture) makeAgain(t testing.TB) {
	t.Helper()
	d.deleteTopic(t)
	d.createTopic(t)
}

func (d *kafkaFixture) deleteTopic(t testing.TB) {
	t.Helper()
	client, done := d.client()
	defer done()
	res, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{d.topic}})
	require.NoError(t, err)
	require.NoError(t, res.Errors[d.topic])
}

func (d *kafkaFixture) createTopic(t testing.TB) {
	t.Helper()
	client, done := d.client()
	defer done()
	testkit.Eventually(t, soon, func() bool {
		made, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{{Topic: d.topic, NumPartitions: 1, ReplicationFactor: 1}}})
		return err == nil && made.Errors[d.topic] == nil
	}, "the topic is there again")
	testkit.Eventually(t, soon, func() bool {
		at, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{d.topic: {kafka.LastOffsetOf(0)}}})
		return err == nil && len(at.Topics[d.topic]) == 1 && at.Topics[d.topic][0].Error == nil
	}, "its leader answers")
}

// The topic is deleted and created again while a member waits for records, and then has more records than before. Run
// does not continue in the middle of the new log.
func TestKafkaTopicMadeAgainWhileReading(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b := newBook()
		cfg := d.config(b.funcSink(t))
		d.write(t, 1, append(records(0, 1, 150), fence(), foreign())...)
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return d.committed(t, cfg.Group) == 152 }, "all are read")
		d.makeAgain(t)
		d.write(t, 1, records(0, 151, 350)...)
		requireMissed(t, w, "created again") // the reader may also have seen that the new log was shorter
		require.Len(t, b.copies(), 150, "no event of the new log was done")
		d.setOffset(t, cfg.Group, 0)
		w = start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 200 }, "all of the new log")
		require.NoError(t, w.stop())
	})
}

// The same, while a group has read nothing but the fence that a publisher writes before its first grant.
func TestKafkaTopicMadeAgainAfterAFence(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b := newBook()
		cfg := d.config(b.funcSink(t))
		d.write(t, 1, fence())
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return d.committed(t, cfg.Group) == 1 }, "the fence is read")
		d.makeAgain(t)
		d.write(t, 1, records(0, 1, 3)...)
		requireMissed(t, w, "created again")
		require.Empty(t, b.copies(), "no event of the new log was done")
	})
}

// The same, while an effect takes long and the reader's queue is full, so that the reader asks the broker nothing.
func TestKafkaTopicMadeAgainDuringAnEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b, begun, goOn := newBook(), make(chan struct{}), make(chan struct{})
		b.fault = func(e *topic.Event) error {
			if e.Grant.Seq == 100 {
				close(begun)
				<-goOn
			}
			return nil
		}
		cfg := d.config(b.funcSink(t))
		cfg.BatchEvents = 5
		d.write(t, 1, records(0, 1, 200)...)
		w := start(t, cfg)
		<-begun
		at := time.Now()
		d.makeAgain(t)
		d.write(t, 1, records(0, 201, 500)...)
		testkit.Eventually(t, soon, func() bool { return time.Since(at) > trusted }, "the log is not trusted any more")
		close(goOn)
		requireMissed(t, w, "has read event", "created again")
		for seq := int64(201); seq <= 500; seq++ {
			require.Zero(t, b.copies()[id(0, seq)], "no event of the new log was done")
		}
	})
}

// The member was stopped meanwhile, and the group's offset is still there, as after a broker has lost the end of a log.
func TestKafkaLogWentBackWhileAway(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		b := newBook()
		cfg := d.config(b.funcSink(t))
		d.write(t, 1, append(records(0, 1, 150), fence(), foreign())...)
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return d.committed(t, cfg.Group) == 152 }, "all are read")
		require.NoError(t, w.stop())
		kept := d.note(t, cfg.Group)
		d.makeAgain(t)
		d.write(t, 1, records(0, 151, 250)...)
		d.restoreNote(t, cfg.Group, kept)
		requireMissed(t, start(t, cfg), "offset 150", "fence-7-0") // the log is shorter than before
		d.write(t, 1, records(0, 251, 350)...)
		requireMissed(t, start(t, cfg), "offset 150", "fence-7-0") // and longer
		require.Len(t, b.copies(), 150)

		d.deleteBefore(t, 151) // the record is unknown now: it may have expired
		w = start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 200-152 }, "it continues")
		require.NoError(t, w.stop())
	})
}

// note returns what the group has committed for partition 0. restoreNote commits it again.
func (d *kafkaFixture) note(t testing.TB, group string) kafka.OffsetCommit {
	t.Helper()
	client, done := d.client()
	defer done()
	res, err := client.OffsetFetch(t.Context(),
		&kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{d.topic: {0}}})
	require.NoError(t, err)
	p := res.Topics[d.topic][0]
	return kafka.OffsetCommit{Partition: p.Partition, Offset: p.CommittedOffset, Metadata: p.Metadata}
}

func (d *kafkaFixture) restoreNote(t testing.TB, group string, kept kafka.OffsetCommit) {
	t.Helper()
	client, done := d.client()
	defer done()
	res, err := client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{d.topic: {kept}}})
	require.NoError(t, err)
	require.NoError(t, res.Topics[d.topic][0].Error)
}
