package subscriber

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Run handles each kind of record that can be in a topic, with kafka-go's real Reader and Writer.
func TestRunMixedTopic(t *testing.T) {
	t.Parallel()
	d, b := inProcess(t, 2), newBook()
	d.write(t, 2, record(grant(0, 1)), fence(), foreign(), stranger(1, false), stranger(2, true), malformed(2),
		record(grant(0, 1)), record(grant(0, 5)), record(grant(0, 3)))
	d.write(t, 2, records(1, 1, 20)...)
	w := start(t, d.config(b.funcSink(t)))
	testkit.Eventually(t, soon, func() bool { s := w.Stats(); return s.Done == 23 && s.Repeated == 1 }, "all read")
	require.NoError(t, w.stop())
	s := w.Stats()
	require.EqualValues(t, 1, s.Fences)
	require.EqualValues(t, 3, s.Foreign)
	require.EqualValues(t, 1, s.Malformed)
	require.Positive(t, s.Commits)
	require.Zero(t, s.Refused+s.CommitErrors)
	copies := b.copies()
	require.Len(t, copies, 23)
	for _, want := range []string{id(0, 1), id(0, 3), id(0, 5), id(1, 20)} {
		require.Equal(t, 1, copies[want], want)
	}
	dead := d.letters(t, 1)[0]
	require.Equal(t, reasonMalformed, letterHeader(dead, headerReason))
	require.Equal(t, malformed(2).Value, dead.Value)
	require.Equal(t, "0-2", letterHeader(dead, "ce_id"))
	require.Equal(t, "5", letterHeader(dead, headerOffset))
	require.Equal(t, "0", letterHeader(dead, headerPartition))
	require.Equal(t, "grants", letterHeader(dead, headerTopic))
	require.Equal(t, "g-grants", letterHeader(dead, headerGroup))
	require.Equal(t, "permanent", letterHeader(dead, headerClass))
	require.Contains(t, letterHeader(dead, headerError), "can't be read")

	again := start(t, d.config(b.funcSink(t)))
	d.write(t, 2, record(grant(0, 6)))
	testkit.Eventually(t, soon, func() bool { return again.Stats().Done == 1 }, "the new event")
	require.NoError(t, again.stop())
	require.Zero(t, again.Stats().Repeated, "everything was committed")
}

// A subscriber starts before its topic exists. It logs this, does not create the topic, and starts to read when the
// topic exists.
func TestRunBeforeTheTopicExists(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "graves"), kfake.AllowAutoTopicCreation())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	d, b := &kafkaFixture{addr: c.ListenAddrs()[0], topic: "grants", burial: "graves", broker: c}, newBook()
	cfg := d.config(b.funcSink(t))
	core, logs := observer.New(zap.WarnLevel)
	cfg.Log = zap.New(core)
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return logs.FilterMessageSnippet("the topic does not exist").Len() == 1 },
		"the log says that Run waits")
	require.Error(t, c.DeleteTopic("grants"), "the subscriber has created no topic")
	require.NoError(t, c.CreateTopic("grants", 2, nil))
	d.write(t, 2, record(grant(0, 1)), record(grant(1, 1)))
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 2 }, "both partitions are read")
	require.NoError(t, w.stop())
	require.Len(t, b.copies(), 2)
}

func TestRunStopsWhileItWaitsForTheTopic(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "graves"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	d := &kafkaFixture{addr: c.ListenAddrs()[0], topic: "grants", burial: "graves", broker: c}
	cfg := d.config(newBook().funcSink(t))
	core, logs := observer.New(zap.WarnLevel)
	cfg.Log = zap.New(core)
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return logs.Len() == 1 }, "it waits")
	require.NoError(t, w.stop())
}
