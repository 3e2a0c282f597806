package subscriber

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// Members join and leave while the topic grows, so partitions move and two members may handle the same batch. Each
// event has exactly one effect.
func TestKafkaRebalance(t *testing.T) {
	t.Parallel()
	const partitions, rounds, n = 4, 6, 200
	d, db := real(t, testkit.Kafka(t), partitions), postgresDB(t)
	sink := db.sink(t, nil)
	cfg := d.config(sink)
	cfg.BatchEvents = 20
	members := []*running{start(t, cfg)}
	var last int64
	for round := range rounds {
		for shard := range partitions {
			d.write(t, partitions, records(shard, last+1, last+n)...)
		}
		last += n
		testkit.Eventually(t, soon, func() bool { effects, _ := db.count(t); return effects > round*n*partitions },
			"round %d has begun", round)
		if round%2 == 0 {
			members = append(members, start(t, cfg))
		} else {
			require.NoError(t, members[0].stop())
			members = members[1:]
		}
	}
	testkit.Eventually(t, soon, func() bool { _, distinct := db.count(t); return distinct == rounds*n*partitions }, "all")
	var refused int64
	for _, m := range members {
		require.NoError(t, m.stop())
		refused += m.Stats().Refused + m.Stats().Malformed
	}
	require.Zero(t, refused)
	effects, distinct := db.count(t)
	require.Equal(t, rounds*n*partitions, distinct)
	require.Equal(t, distinct, effects)
}

// A member is stopped and started again. It reads no record twice. Events with lower seqs that arrive only now have
// their effect.
func TestKafkaRestart(t *testing.T) {
	t.Parallel()
	d, db := real(t, testkit.Kafka(t), 2), postgresDB(t)
	sink := db.sink(t, nil)
	d.write(t, 2, record(grant(0, 1)), record(grant(0, 2)), record(grant(0, 9)))
	w := start(t, d.config(sink))
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 3 }, "the first three")
	require.NoError(t, w.stop())
	d.write(t, 2, record(grant(0, 4)), record(grant(0, 9)), record(grant(1, 1)))
	again := start(t, d.config(sink))
	testkit.Eventually(t, soon, func() bool { s := again.Stats(); return s.Done == 2 && s.Repeated == 1 },
		"one late event, one copy, one event of another shard")
	require.NoError(t, again.stop())
	effects, distinct := db.count(t)
	require.Equal(t, [2]int{5, 5}, [2]int{effects, distinct})
}

func TestKafkaBrokerKilled(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d, db := real(t, broker, 1), postgresDB(t)
	d.write(t, 1, append(records(0, 1, 100), malformed(200))...)
	poison := func(e *topic.Event) error {
		if e.Grant.Seq == 42 {
			return hongbao.Errorf(hongbao.ClassPermanent, "no such user")
		}
		return nil
	}
	w := start(t, d.config(db.sink(t, poison)))
	testkit.Eventually(t, soon, func() bool { s := w.Stats(); return s.Done == 99 && s.Refused == 1 && s.Malformed == 1 },
		"the first hundred")
	testkit.Eventually(t, soon, func() bool { return d.committed(t, "g-"+d.topic) == 101 }, "committed")
	require.NoError(t, broker.Kill())
	require.NoError(t, broker.Restart())
	d.write(t, 1, records(0, 101, 200)...)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 199 }, "the second hundred")
	require.NoError(t, w.stop())
	reasons := map[string]int{}
	for _, dead := range d.letters(t, 2) {
		reasons[letterHeader(dead, headerReason)]++
	}
	require.Equal(t, map[string]int{reasonMalformed: 1, reasonRefused: 1}, reasons)
	effects, distinct := db.count(t)
	require.Equal(t, [2]int{199, 199}, [2]int{effects, distinct})
}

func TestKafkaExpiredUnreadEndsRun(t *testing.T) {
	t.Parallel()
	requireExpiredIsSeen(t, real(t, testkit.Kafka(t), 1), newBook())
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Brokers: []string{""}, Topic: "a b", DeadLetters: "a b", MaxBackoff: -1})
	for _, part := range []string{
		"Brokers[0]", "Sink and Log", "ClientID", "Topic", "Group", "Deployment", "DeadLetters is the topic itself",
		"BatchEvents", "FetchBytes", "MaxAttempts",
		"Linger", "MaxWait", "SessionTimeout", "RequestTimeout", "CommitTimeout", "Backoff", "MaxBackoff",
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(Config{})
	require.ErrorContains(t, err, "Brokers is empty")
	_, err = New(Config{Topic: ".", DeadLetters: ".."})
	require.ErrorContains(t, err, `Topic ".": want`)
	require.ErrorContains(t, err, `DeadLetters "..": want`)
	d := &kafkaFixture{addr: "127.0.0.1:1", topic: "grants", burial: "graves"}
	_, err = New(d.config(lazySink{}))
	require.NoError(t, err)
}

// The configuration of kafka-go sets all options whose defaults could lose grants or hang.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	d := &kafkaFixture{addr: "127.0.0.1:1", topic: "grants", burial: "graves"}
	cfg := d.config(lazySink{})
	r := readerConfig(&cfg, 3)
	require.NoError(t, r.Validate())
	require.Equal(t, 3, r.Partition)
	require.Equal(t, kafka.ReadCommitted, r.IsolationLevel)
	require.True(t, r.OffsetOutOfRangeError)
	require.Equal(t, cfg.MaxWait, r.MaxWait)
	require.Equal(t, cfg.RequestTimeout, r.Dialer.Timeout)
	g := groupConfig(&cfg)
	require.NoError(t, g.Validate())
	require.Equal(t, kafka.FirstOffset, g.StartOffset)
	require.Equal(t, cfg.SessionTimeout, g.SessionTimeout)
	require.Greater(t, g.RebalanceTimeout, cfg.DrainTimeout)
	require.Less(t, g.HeartbeatInterval, g.SessionTimeout/2)
	require.Equal(t, cfg.RequestTimeout, g.Timeout)
	require.Equal(t, cfg.RequestTimeout, g.Dialer.Timeout)
	require.False(t, g.WatchPartitionChanges)
	w := newWriter(&cfg)
	require.Equal(t, kafka.RequireAll, w.RequiredAcks)
	require.False(t, w.Async)
	require.False(t, w.AllowAutoTopicCreation)
	require.Equal(t, "graves", w.Topic)
	require.Equal(t, 1, w.MaxAttempts)
	require.Equal(t, cfg.RequestTimeout, w.WriteTimeout)
}
