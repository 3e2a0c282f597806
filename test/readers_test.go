package test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// fact has the fields of a grant that readers of the topic see.
type fact struct {
	Campaign string         `json:"campaign"`
	Packet   int64          `json:"packet"`
	User     string         `json:"user"`
	Amount   hongbao.Amount `json:"amount"`
	Shard    int            `json:"shard"`
	Seq      int64          `json:"seq"`
}

func order(facts []fact) []fact {
	slices.SortFunc(facts, func(a, b fact) int { return int(a.Packet - b.Packet) })
	return facts
}

// published lets n users grab a campaign, publishes the grants to a topic with the given compression, and returns the
// grants.
func published(t *testing.T, broker *testkit.KafkaBroker, topic, compression string, n int) []fact {
	t.Helper()
	b := setup(t, 2)
	b.load(t, spec("readers", int64(n), 100*hongbao.Amount(n)))
	p := b.producer(t)
	var facts []fact
	for i := range n {
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: "readers", User: user(i)})
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		r := a.Receipts[0]
		facts = append(facts, fact{Campaign: "readers", Packet: r.Packet, User: user(i), Amount: r.Amount, Shard: r.Shard,
			Seq: r.Seq})
	}
	claims, err := b.store.Claims(store.ClaimsConfig{Sink: "kafka", Owner: "w1",
		Lease: 30 * time.Second, TakeLive: true})
	require.NoError(t, err)
	pub, err := publish.New(publish.Config{
		Brokers: []string{broker.Addr}, ClientID: "test", Topic: topic, Partitions: 2, Deployment: "test", Worker: "w1",
		BatchGrants: 100, BatchBytes: 1_000_000, Compression: compression,
		DialTimeout: 5 * time.Second, RequestTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MetadataTTL: time.Second, AttemptTime: 10 * time.Second, MaxClaimAge: 20 * time.Second,
		ProducerExpiration: 24 * time.Hour, FetchBytes: 1 << 20,
	}, claims, b.store)
	require.NoError(t, err)
	t.Cleanup(pub.Close)
	w, stop := b.work(t, "kafka", "w1", pub, func(*consumer.Config) {})
	testkit.Eventually(t, 30*time.Second, func() bool { return w.Stats().Done == int64(n) }, "all published")
	stop()
	return order(facts)
}

// block returns the first code block of docs/subscribers.md that contains a text.
func block(t *testing.T, part string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/subscribers.md")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?s)```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(found[1], part) {
			return found[1]
		}
	}
	require.Fail(t, "docs/subscribers.md has no code block with "+part)
	return ""
}

// Package subscriber and Kafka's console consumer, with the command from docs/subscribers.md, read exactly the answers that
// users got.
func TestReadersOfTheTopic(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	name, dead := broker.Topic(t, 2, nil), broker.Topic(t, 1, nil)
	facts := published(t, broker, name, "none", 200)
	t.Run("subscriber", func(t *testing.T) {
		require.Equal(t, facts,
			bySubscriber(t, broker.Addr, name, dead, len(facts)))
	})
	t.Run("console", func(t *testing.T) { require.Equal(t, facts, byConsole(t, broker, name)) })
}

// Package subscriber and Kafka's console consumer read batches of every compression.
func TestReadersOfACompressedTopic(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	for _, compression := range []string{"gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			name, dead := broker.Topic(t, 2, nil), broker.Topic(t, 1, nil)
			facts := published(t, broker, name, compression, 200)
			require.Equal(t, facts, bySubscriber(t, broker.Addr, name, dead, len(facts)))
			require.Equal(t, facts, byConsole(t, broker, name))
		})
	}
}

func factOf(g *hongbao.Grant) fact {
	return fact{Campaign: g.Campaign, Packet: g.Packet, User: g.User, Amount: g.Amount, Shard: g.Shard, Seq: g.Seq}
}

func bySubscriber(t *testing.T, addr, name, dead string, n int) (got []fact) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "reader.db")+
		"?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	defer db.Close()
	sink, err := subscriber.NewSQL(t.Context(), subscriber.SQLConfig{
		DB: db, Dialect: "sqlite", Name: "readers", Timeout: 10 * time.Second,
		Effect: func(_ context.Context, _ *sql.Tx, events []topic.Event) error {
			for i := range events {
				got = append(got, factOf(&events[i].Grant))
			}
			return nil
		},
	})
	require.NoError(t, err)
	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Topic, cfg.Group, cfg.Deployment = []string{addr}, "test", name, "readers", "test"
	cfg.DeadLetters, cfg.Sink, cfg.Log = dead, sink, zap.NewNop()
	s, err := subscriber.New(cfg)
	require.NoError(t, err)
	stop := testkit.Go(t, s.Run)
	testkit.Eventually(t, 60*time.Second, func() bool { return s.Stats().Done == int64(n) }, "all read")
	stop()
	require.Equal(t, int64(n), s.Stats().Done)
	return order(got)
}

// byConsole runs the command from docs/subscribers.md.
func byConsole(t *testing.T, broker *testkit.KafkaBroker, topic string) (got []fact) {
	n := records(t.Context(), broker, topic, 0) + records(t.Context(), broker, topic, 1)
	command := strings.ReplaceAll(block(t, "kafka-console-consumer.sh"), "\\\n", " ")
	dir := ".cache"
	if own := os.Getenv("HONGBAO_KAFKA_DIR"); own != "" {
		dir = own
	}
	command = strings.NewReplacer("localhost:9092", broker.Addr, "hongbao.grants", topic).Replace(command)
	args := strings.Fields(command)
	require.Equal(t, "kafka-console-consumer.sh", args[0])
	// scripts/setup.sh keeps only Kafka's libraries. The script would run this class with the same options.
	args = append([]string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
		filepath.Join(dir, "kafka-"+broker.Version, "libs", "*"), "org.apache.kafka.tools.consumer.ConsoleConsumer"}, args[1:]...)
	cmd := exec.CommandContext(t.Context(), "java", append(args, "--max-messages", fmt.Sprint(n))...)
	cmd.Dir = ".."
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &says)
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if i < 2 {
			t.Log(line)
		}
		cells := strings.Split(line, "\t")
		require.Len(t, cells, 3, line)
		if strings.Contains(cells[0], "ce_type:hongbao.fence.v1") {
			continue
		}
		require.Contains(t, cells[0], "ce_type:hongbao.grant.v1")
		var f fact
		require.NoError(t, json.Unmarshal([]byte(cells[2]), &f))
		require.Equal(t, f.User, cells[1])
		got = append(got, f)
	}
	return order(got)
}
