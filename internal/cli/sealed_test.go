package cli

import (
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// After a seal the audit does not read the sealed campaign's records of the topic again. It finds records that are
// published later. If the topic is created again, it reads the whole topic.
func TestSealedCampaignInTheTopic(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	d := setup(t, options{kafka: true, broker: broker})
	d.sealed("rain", 12)
	d.campaign("snow", 20, 2000)
	w := d.start("work")
	require.Equal(t, 10, d.crowdOf("snow", 0, 10))
	d.quiet()
	w.stop(syscall.SIGTERM)
	published := func(args ...string) []int64 {
		r := decided[model.AuditReport](t, d.ok(append([]string{"audit", "--json"}, args...)...))
		return []int64{r.Campaigns[0].Published, r.Campaigns[1].Published}
	}
	require.Equal(t, []int64{0, 10}, published())
	require.Equal(t, []int64{12, 10}, published("--full"))
	require.Equal(t, []int64{0, 10}, published("--seal"))

	first := d.records()[0] // of rain, since rain was published first
	d.write(first.Partition, kafka.Message{Key: first.Key, Value: first.Value, Headers: first.Headers, Time: first.Time})
	for _, flags := range [][]string{nil, {"--seal"}, {"--full"}} { // a seal does not hide the copy from the next audit
		r := d.run(append([]string{"audit"}, flags...)...)
		require.Equal(t, 3, r.code, r.err)
		require.Contains(t, r.out, "duplicate_in_topic: 1.")
	}

	client := &kafka.Client{Addr: kafka.TCP(broker.Addr)}
	_, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{d.topic}})
	require.NoError(t, err)
	require.NoError(t, broker.CreateTopic(t.Context(), d.topic, 2, nil))
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 10}, d.audit(3).Found)
	d.ok("replay", "repair", "--to", "kafka", "--missing")
	require.Equal(t, []int64{12, 10}, published("--seal"), "the new topic has no base yet")
	require.Equal(t, []int64{0, 10}, published())
}
