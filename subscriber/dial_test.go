package subscriber

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// All connections of a Subscriber come from Dial: this broker has no other way in.
func TestDial(t *testing.T) {
	t.Parallel()
	var network kfake.VirtualNetwork
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "grants", "graves"), kfake.Ports(9092),
		kfake.ListenFn(network.Listen))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := &kafka.Writer{Addr: kafka.TCP("localhost:9092"), Topic: "grants", Transport: &kafka.Transport{Dial: network.DialContext}}
	require.NoError(t, w.WriteMessages(t.Context(), record(grant(0, 1)), malformed(2)))
	require.NoError(t, w.Close())
	d := &kafkaFixture{addr: "localhost:9092", topic: "grants", burial: "graves"}
	book := newBook()
	cfg := d.config(book.funcSink(t))
	cfg.Dial = network.DialContext
	run := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { s := run.Stats(); return s.Done == 1 && s.Malformed == 1 && s.Commits > 0 },
		"an effect, a dead letter and a commit")
	require.NoError(t, run.stop())
}
