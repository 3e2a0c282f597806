package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// lagOf returns how many entries of shard 0 a group has not finished, or -1 if there is no such group.
func (d *deployment) lagOf(group string) int64 {
	d.t.Helper()
	list, err := d.rdb.XInfoGroups(d.t.Context(), d.store.Shard(0).Keys.Events()).Result()
	require.NoError(d.t, err)
	for _, g := range list {
		if g.Name == group {
			return g.Pending + g.Lag
		}
	}
	return -1
}

// A sink is down when the worker starts. The other sink works, and the first sink begins to work when its server is
// back.
func TestWorkStartsWithoutASinkThatIsAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, here string
		stop       func(t *testing.T, o *options) interface {
			Kill() error
			Restart() error
		}
	}{
		{"the broker", "balance", func(t *testing.T, o *options) interface {
			Kill() error
			Restart() error
		} {
			o.broker = testkit.NewKafka(t, testkit.KafkaOptions{})
			return o.broker
		}},
		{"the ledger", "kafka", func(t *testing.T, o *options) interface {
			Kill() error
			Restart() error
		} {
			o.server = needsPostgres(t)
			return o.server
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("needs a server")
			}
			o := options{kafka: true}
			server := c.stop(t, &o)
			d := setup(t, o)
			d.campaign("rain", 500, 100_000)
			require.NoError(t, server.Kill())
			w := d.start("work")
			w.says("a sink can't be reached; it is tried again and again")
			w.says(`"working"`)
			require.Equal(t, 500, d.crowdOf("rain", 0, 500))
			testkit.Eventually(t, 30*time.Second, func() bool { return d.lagOf(c.here) == 0 },
				"the sink that works has finished every event")
			w.says("the sink can't be reached yet") // it is tried again and again
			require.NoError(t, server.Restart())
			d.quiet()
			w.says("the sink works again")
			w.stop(syscall.SIGTERM)
			d.agrees(500)
		})
	}
}

// The broker dies while grants arrive. Everybody who asks for the state of the sinks sees the worker's reason, long before
// a grant has waited for 30 s. The report ends with the outage, and with the worker.
func TestSinkListSaysWhyASinkIsDown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := setup(t, options{kafka: true, broker: broker})
	d.campaign("rain", 500, 100_000)
	w := d.start("work")
	require.Equal(t, 100, d.crowdOf("rain", 0, 100))
	d.quiet()
	require.Equal(t, deliveries.SinkWorking, d.sinkState("kafka").State)
	is := func(state deliveries.SinkState) func() bool {
		return func() bool { return d.sinkState("kafka").State == state }
	}
	for round := range 2 {
		require.NoError(t, broker.Kill())
		killed := time.Now()
		require.Equal(t, 100, d.crowdOf("rain", 100+100*round, 100))
		testkit.Eventually(t, 25*time.Second, is(deliveries.SinkDown), "the sink is down")
		t.Logf("known after %s", time.Since(killed).Round(time.Second))
		s := d.sinkState("kafka")
		require.Contains(t, s.Why, "can't deliver on ")
		require.Contains(t, s.Why, broker.Addr)
		require.Contains(t, s.Why, "(sink_down)")
		require.Equal(t, deliveries.SinkWorking, d.sinkState("balance").State)
		for range 20 { // longer than a report lasts
			require.True(t, retry.Pause(t.Context(), time.Second))
			require.Equal(t, deliveries.SinkDown, d.sinkState("kafka").State)
		}
		if round > 0 {
			break
		}
		require.NoError(t, broker.Restart())
		testkit.Eventually(t, time.Minute, is(deliveries.SinkWorking), "the sink works again")
		d.quiet()
	}
	w.stop(syscall.SIGTERM)
	require.NotEqual(t, deliveries.SinkDown, d.sinkState("kafka").State, "a worker that ends withdraws its report")
	require.NoError(t, broker.Restart())
	w = d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(300)
}

// No sink is reachable when the worker starts. The worker waits, and starts each sink when its server is back.
func TestWorkWaitsForAllItsSinks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	o := options{kafka: true, broker: testkit.NewKafka(t, testkit.KafkaOptions{}), server: needsPostgres(t)}
	d := setup(t, o)
	d.campaign("rain", 10, 1000)
	require.Equal(t, 5, d.crowdOf("rain", 0, 5))
	require.NoError(t, o.broker.Kill())
	require.NoError(t, o.server.Kill())
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Count(w.Err.String(), "a sink can't be reached; it is tried again and again") == 2
	}, "both are down")
	require.NoError(t, o.broker.Restart())
	require.NoError(t, o.server.Restart())
	d.quiet()
	w.stop(syscall.SIGTERM)
}

// A worker is stopped while it waits for a sink that never answers. It logs no failure of this sink.
func TestStoppedWhileASinkIsAsked(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = mute.Close() }()
	asked := make(chan net.Conn, 16)
	go func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			asked <- conn // never answered
		}
	}()
	d := setup(t, options{kafka: true})
	d.ok("campaign", "list") // creates the ledger and logs that
	d.set("KAFKA_BROKERS", mute.Addr().String())
	w := d.start("work")
	select {
	case conn := <-asked:
		defer func() { _ = conn.Close() }()
	case <-time.After(time.Minute):
		t.Fatal("the worker never asked the broker: " + w.Err.String())
	}
	w.Signal(syscall.SIGTERM)
	r := w.wait(30 * time.Second)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "can't be reached")
	require.NotContains(t, r.err, "ALARM")
}

// The status of a sink shows at once that its worker was stopped, and shows no crash.
func TestAStoppedWorkerIsNoLostOne(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{})
	d.campaign("rain", 10, 100)
	w := d.start("work")
	working := func() bool { return d.sinkState("balance").State == deliveries.SinkWorking }
	testkit.Eventually(t, 10*time.Second, working, "the worker works")
	w.stop(syscall.SIGTERM)
	s := d.sinkState("balance")
	require.Equal(t, deliveries.SinkNoWorker, s.State)
	require.Regexp(t, "^its last worker .+ was stopped [0-9]s ago, in order; `hongbao work` starts one$", string(s.Why))
	w = d.start("work")
	testkit.Eventually(t, 10*time.Second, working, "the next worker works")
	w.stop(syscall.SIGTERM)
}

// The topic is wrong when the worker starts. Credits are paid anyway. After the repair the worker publishes without a
// restart.
func TestWrongTopicStopsNoCreditAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := setup(t, options{kafka: true, broker: broker})
	d.set("KAFKA_PARTITIONS", "3") // the topic has 2 partitions
	d.campaign("rain", 100, 1000)
	w := d.start("work")
	w.says("ALARM: a sink can't be opened")
	w.says(`"code":"sink_broken"`)
	testkit.Eventually(t, 10*time.Second, func() bool { return d.sinkState("kafka").State == deliveries.SinkDown }, "the sink is down")
	require.Contains(t, d.sinkState("kafka").Why, "(sink_broken) and tries again within a minute: ")
	d.refused(exitFound, []string{"status"}, "workers can't deliver to kafka: ")
	require.Contains(t, d.ok("sink", "list"), "kafka: worker ", "a list is no check")
	require.Equal(t, 100, d.crowdOf("rain", 0, 100))
	testkit.Eventually(t, 30*time.Second, func() bool { return d.lagOf("balance") == 0 }, "the other sink works on")
	client := kafka.Client{Addr: kafka.TCP(broker.Addr)}
	res, err := client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: d.topic, Count: 3}},
	})
	require.NoError(t, err)
	require.NoError(t, res.Errors[d.topic])
	w.says("the sink works again")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(100)
}

// The topic is deleted for longer than the attempts of a batch, and is created again. The same worker publishes to it
// again. A replay publishes the records that were deleted.
func TestTopicThatWasAwayIsPublishedToAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.Kafka(t)
	// The shard is broken only if an attempt of 4.8 s finds no topic until its end. The attempt must end during a pause
	// between two requests. If it ends during a request, the batch may be in the log, so the sink only counts as down.
	d := setup(t, options{kafka: true, broker: broker, lease: 8 * time.Second})
	d.campaign("rain", 200, 10_000)
	w := d.start("work")
	require.Equal(t, 100, d.crowdOf("rain", 0, 100))
	d.quiet()
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr)}
	_, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{d.topic}})
	require.NoError(t, err)
	require.Equal(t, 50, d.crowdOf("rain", 100, 50))
	w.Says(2*time.Minute, "ALARM: shard is broken") // on a busy machine more attempts end during a request
	testkit.Eventually(t, 30*time.Second, func() bool { return d.lagOf("balance") == 0 }, "credits continue")
	require.Positive(t, d.lagOf("kafka"))
	require.NoError(t, broker.CreateTopic(t.Context(), d.topic, 2, nil))
	d.quiet()
	require.Equal(t, 50, d.crowdOf("rain", 150, 50))
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.ok("replay", "repair", "--to", "kafka", "--missing")
	d.agrees(200)
}

// The ledger is wrong. The worker publishes every grant anyway, and exits with an error at its end.
func TestWrongLedgerStopsNoMessage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{kafka: true})
	d.campaign("rain", 100, 1000)
	file := filepath.Join(t.TempDir(), "other.db")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("no database ", 1000)), 0o600))
	d.set("LEDGER_DSN", file)
	w := d.start("work")
	w.says("ALARM: a sink can't be opened")
	require.Equal(t, 100, d.crowdOf("rain", 0, 100))
	testkit.Eventually(t, 30*time.Second, func() bool { return d.lagOf("kafka") == 0 }, "the other sink works on")
	w.Signal(syscall.SIGTERM)
	r := w.wait(30 * time.Second)
	require.Equal(t, 1, r.code, r.err)
}
