package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A replay to a new topic is killed many times at random times, in one case between a send and its late answer. The new
// topic has each event once.
func TestReplayKilledAnywhere(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	for name, late := range map[string]time.Duration{"answers at once": 0, "late answers": 8 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			c := newOneCopy(t, broker, 0)
			c.grants(6_000)
			fresh := broker.Topic(t, 2, nil)
			args := []string{"replay", "copy", "--to", "topic:" + fresh, "--rate", "1000", "--publisher.batch_grants", "50",
				"--json"}

			before := dumpOf(c)
			out, err := c.hongbao(append(args, "--dry-run")...)
			require.NoError(t, err)
			var dry model.ReplayReport
			require.NoError(t, json.Unmarshal([]byte(out), &dry))
			require.Equal(t, int64(6_000), dry.Matched)
			require.Equal(t, before, dumpOf(c), "a dry run changes nothing")
			require.Empty(t, c.copies(fresh))

			c.broker.Proxy.Delay(late)
			kills := c.killed(10, 400*time.Millisecond, func(int) {}, args...)
			c.broker.Proxy.Delay(0)
			c.exactly(fresh)
			out, err = c.hongbao(args...)
			require.NoError(t, err)
			var again model.ReplayReport
			require.NoError(t, json.Unmarshal([]byte(out), &again))
			require.Zero(t, again.Delivered, "a repeat pushes nothing")
			require.True(t, again.Finished)
			c.exactly(fresh)
			require.Empty(t, openClaims(c, replay.DoneSink("copy")))
			t.Logf("killed %d times", kills)
		})
	}
}

func dumpOf(c *oneCopy) map[string]string {
	c.t.Helper()
	keys, err := c.rdb.Keys(c.t.Context(), strings.TrimSuffix(c.keys.Keys.Meta(), "meta")+"*").Result()
	require.NoError(c.t, err)
	require.NotEmpty(c.t, keys)
	out := map[string]string{}
	for _, key := range keys {
		out[key], err = c.rdb.Dump(c.t.Context(), key).Result()
		require.NoError(c.t, err)
	}
	return out
}

func openClaims(c *oneCopy, sink string) []string {
	c.t.Helper()
	keys, err := c.rdb.HKeys(c.t.Context(), c.keys.Keys.Claims(sink)).Result()
	require.NoError(c.t, err)
	var open []string
	for _, k := range keys {
		if k != "#fence" {
			open = append(open, k)
		}
	}
	return open
}

// settled books all grants in the ledger, and adds sink balance to the deployment.
func (c *oneCopy) settled() {
	c.t.Helper()
	entries, err := c.keys.Entries(c.t.Context(), "-", "+")
	require.NoError(c.t, err)
	var grants []hongbao.Grant
	for _, e := range entries {
		grants = append(grants, e.Grants...)
	}
	l := newDatabase(c.t, sqlite(c.ledger))
	_, err = l.CreateCampaign(c.t.Context(), rowOf(spec("rain", c.seq, hongbao.Amount(100*c.seq))))
	require.NoError(c.t, err)
	s, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: l, Plan: hundred{}, Log: zap.NewNop()})
	require.NoError(c.t, err)
	require.Nil(c.t, s.Handle(c.t.Context(), testkit.Batch(grants)))
	require.NoError(c.t, l.Close())
	c.env = append(c.env, "HONGBAO_DEPLOYMENT_SINKS=balance,kafka")
}

// hundred is a plan with 100 minor units for every packet.
type hundred struct{}

func (hundred) Amount(context.Context, string, int64) (hongbao.Amount, bool, error) {
	return 100, true, nil
}

// The stream is trimmed between the kills, including entries of batches that the replay has stored. The replay takes
// trimmed events from the ledger.
func TestReplayKilledWhileTheStreamIsTrimmed(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	c := newOneCopy(t, broker, 0)
	c.grants(4_000)
	c.settled()
	fresh := broker.Topic(t, 2, nil)
	c.broker.Proxy.Delay(4 * time.Millisecond)
	kills := c.killed(8, 400*time.Millisecond, func(kills int) {
		if kills == 2 || kills == 4 {
			require.NoError(t, c.rdb.XTrimMaxLen(t.Context(), c.keys.Keys.Events(), int64(300*(4-kills)/2)).Err())
		}
	}, "replay", "copy", "--to", "topic:"+fresh, "--rate", "800", "--publisher.batch_grants", "50", "--json")
	c.broker.Proxy.Delay(0)
	c.exactly(fresh)
	require.Empty(t, openClaims(c, replay.DoneSink("copy")))
	t.Logf("killed %d times", kills)
}

// The topic has lost finished events. A replay with --missing publishes each of them once, and a replay without it
// skips them. Neither can publish events whose entry was deleted before a worker read it.
func TestReplayRepairsTheTopic(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	c := newOneCopy(t, broker, 0)
	c.grants(200)
	lost := []stream.SeqRange{{First: 11, Last: 30}, {First: 77, Last: 77}} // finished, but not in the topic
	_, err := c.keys.Group("kafka").Ack(t.Context(), stream.OfCampaign("", lost...), nil)
	require.NoError(t, err)
	entries, err := c.keys.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.NoError(t, c.rdb.XDel(t.Context(), c.keys.Keys.Events(), entries[15].ID).Err()) // 151 to 160
	w := c.worker()
	c.finishedBut(10)
	c.drain(w)
	var gone []int64
	for _, r := range append(lost, stream.SeqRange{First: 151, Last: 160}) {
		for seq := r.First; seq <= r.Last; seq++ {
			gone = append(gone, seq)
		}
	}
	c.exactly(c.topic, gone...)
	_, err = c.hongbao("replay", "recover", "--to", "kafka")
	require.NoError(t, err)
	c.exactly(c.topic, gone...) // 151 to 160 were in the deleted entry
	for range 2 {
		_, err = c.hongbao("replay", "recover-lost", "--to", "kafka", "--missing")
		require.NoError(t, err)
		c.exactly(c.topic, gone[21:]...)
	}
	_, err = c.hongbao("replay", "no", "--to", "topic:"+c.topic)
	require.ErrorContains(t, err, "use --to kafka")
}

// The trimmer deletes done bits of events that have left the stream, which still count as done. A replay to the topic
// publishes none of these events again. A replay with --missing publishes those that the topic lacks.
func TestReplayBehindTheDoneBits(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	c := newOneCopy(t, broker, 0)
	c.grants(store.ChunkEvents + 3_000)
	// finished, but not in the topic
	_, err := c.keys.Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 11, Last: 30}), nil)
	require.NoError(t, err)
	gone := make([]int64, 20)
	for i := range gone {
		gone[i] = int64(11 + i)
	}
	w := c.worker()
	c.finished()
	c.drain(w)
	c.settled()
	cfg := consumer.DefaultTrimmerConfig()
	cfg.Deployment, cfg.Groups, cfg.Retention = deployment.Of(c.store, zap.NewNop()), []string{"kafka"}, 0
	trimmer, err := consumer.NewTrimmer(cfg)
	require.NoError(t, err)
	testkit.Eventually(t, 20*time.Second, func() bool { // a retention of 0 means before this millisecond
		require.NoError(t, trimmer.Trim(t.Context(), 0))
		return c.rdb.Exists(t.Context(), c.keys.Keys.Done("kafka", 0)).Val() == 0
	}, "the first chunk of done bits is deleted")
	c.exactly(c.topic, gone...)
	_, err = c.hongbao("replay", "all", "--to", "kafka")
	require.NoError(t, err)
	c.exactly(c.topic, gone...)
	_, err = c.hongbao("replay", "lost", "--to", "kafka", "--missing")
	require.NoError(t, err)
	c.exactly(c.topic)
}

// Two replays with --missing run at once under different names. The second one waits for the first and then reads the
// topic. Each event is published once.
func TestReplaysOfWhatIsMissingAtOnce(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	c := newOneCopy(t, broker, 0)
	c.grants(1_000)
	// finished, but not in the topic
	_, err := c.keys.Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 1_000}), nil)
	require.NoError(t, err)
	var both []*exec.Cmd
	for i := range 2 {
		cmd := c.command("replay", fmt.Sprint("lost", i), "--to", "kafka", "--missing", "--rate", "500",
			"--publisher.batch_grants", "50")
		require.NoError(t, cmd.Start())
		both = append(both, cmd)
	}
	for _, cmd := range both {
		require.NoError(t, cmd.Wait(), "%v", cmd.Stderr)
	}
	c.exactly(c.topic)
}
