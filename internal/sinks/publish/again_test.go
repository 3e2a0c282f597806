package publish

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// makeAgain deletes the topic and creates it again. A worker without memory fills its partition 0 beyond the old end.
func (b *bench) makeAgain(t *testing.T) []hongbao.Grant {
	t.Helper()
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.cfg.Brokers...), Timeout: 5 * time.Second, Transport: tr}
	_, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{b.cfg.Topic}})
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		made, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: b.cfg.Topic, NumPartitions: b.cfg.Partitions, ReplicationFactor: 1}}})
		return err == nil && made.Errors[b.cfg.Topic] == nil
	}, "the topic is there again")
	fresh, _ := b.worker(t)
	g := b.store.grants(2, 60, decided)
	testkit.Eventually(t, 30*time.Second, func() bool { return fresh.Handle(t.Context(), testkit.Batch(g)) == nil }, "the log is longer now")
	return g
}

// onBoth runs a test on the in-process broker and on Apache Kafka.
func onBoth(t *testing.T, fn func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	t.Run("in process", func(t *testing.T) { t.Parallel(); fn(t, setup(t)) })
	t.Run("Apache Kafka", func(t *testing.T) { t.Parallel(); fn(t, real(t, testkit.Kafka(t))) })
}

// A topic is deleted, created again and filled beyond the end that the worker knows. The worker reports this once.
func TestKafkaTopicThatRegrewIsReported(t *testing.T) {
	for name, idle := range map[string]bool{"idle session": true, "new session": false} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				p, _ := b.worker(t)
				later := time.Duration(0)
				p.now = func() time.Time { return time.Now().Add(later) }
				require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
				others := b.makeAgain(t)
				if idle {
					later = b.cfg.MaxClaimAge * 2
				} else {
					p.slots[0].session = nil // as after any failure
				}
				g := b.store.grants(0, 20, decided)
				errs := p.Handle(t.Context(), testkit.Batch(g))
				requireClass(t, errs, 20, hongbao.ClassBroken, false)
				require.ErrorContains(t, errs[0], "went back")
				require.Zero(t, b.store.open(0), "nothing was claimed")
				require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)), "after the report it continues")
				later += b.cfg.MaxClaimAge * 2
				last := b.store.grants(0, 20, decided)
				require.Nil(t, p.Handle(t.Context(), testkit.Batch(last)))
				requireOneCopy(t, &b.cfg, others, g, last)
			})
		})
	}
}

// The worker's last record is still there, or has expired. Then the worker has nothing to report.
func TestKafkaOwnLastRecordIsThereOrExpired(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.cfg.Compression = "zstd"
		p, _ := b.worker(t)
		other, _ := b.worker(t)
		later := time.Duration(0)
		p.now = func() time.Time { return time.Now().Add(later) }
		for range 2 {
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
			require.Nil(t, other.Handle(t.Context(), testkit.Batch(b.store.grants(2, 20, decided))))
			later += b.cfg.MaxClaimAge * 2
		}
		b.deleteBefore(t, 70) // 21 + 21 + 20 + 20 records are there
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
		p.slots[0].session = nil
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	})
}

// deleteBefore deletes the records of partition 0 before the offset, as retention does.
func (b *bench) deleteBefore(t *testing.T, offset int64) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	require.NoError(t, err)
	defer c.Close()
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Offset = offset
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: b.cfg.Topic,
		Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part}}}
	res, err := req.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, res.Topics[0].Partitions[0].ErrorCode)
}
