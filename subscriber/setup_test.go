package subscriber

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
	}
	testkit.Main(m)
}

const soon = 60 * time.Second

var decided = time.Date(2026, 11, 21, 8, 0, 0, 123e6, time.UTC)

func grant(shard int, seq int64) hongbao.Grant {
	return hongbao.Grant{
		Shard: shard, Seq: seq, Epoch: 1, Campaign: "spring", Packet: seq*100 + int64(shard) + 1,
		Amount: hongbao.Amount(100 + seq),
		User:   "u" + strconv.FormatInt(seq, 10), Time: decided,
	}
}

// event returns the grant as a sink gets it.
func event(shard int, seq int64) topic.Event {
	return topic.Event{Grant: grant(shard, seq), Source: "/hongbao/d1"}
}

func events(shard int, seqs ...int64) (out []topic.Event) {
	for _, seq := range seqs {
		out = append(out, event(shard, seq))
	}
	return out
}

// record returns a record of deployment d1 like those of the publisher.
func record(g hongbao.Grant) kafka.Message {
	value, headers := testkit.Record("d1", &g)
	m := kafka.Message{Key: []byte(g.User), Value: value}
	for _, h := range headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
	}
	return m
}

func records(shard int, first, last int64) (out []kafka.Message) {
	for seq := first; seq <= last; seq++ {
		out = append(out, record(grant(shard, seq)))
	}
	return out
}

// fence returns a fence record, foreign a record of another producer, and stranger an event of another deployment.
func fence() kafka.Message {
	return kafka.Message{Value: []byte("{}"), Headers: []kafka.Header{
		{Key: cloudevent.HeaderSpecVersion, Value: []byte("1.0")},
		{Key: cloudevent.HeaderSource, Value: []byte("/hongbao/d1")},
		{Key: cloudevent.HeaderType, Value: []byte(cloudevent.TypeFence)},
		{Key: cloudevent.HeaderID, Value: []byte("fence-7-0")},
	}}
}

func foreign() kafka.Message {
	return kafka.Message{Key: []byte("k"), Value: []byte("not JSON at all")}
}

func stranger(seq int64, malformed bool) kafka.Message {
	m := record(grant(0, seq))
	for i := range m.Headers {
		if m.Headers[i].Key == cloudevent.HeaderSource {
			m.Headers[i].Value = []byte("/hongbao/d2")
		}
	}
	if malformed {
		m.Value = []byte("{")
	}
	return m
}

// malformed returns a record that claims to be the grant with this seq, but whose value is truncated.
func malformed(seq int64) kafka.Message {
	m := record(grant(0, seq))
	m.Value = m.Value[:len(m.Value)-5]
	return m
}

// kafkaFixture is a broker with a topic of grants and a topic of dead letters.
type kafkaFixture struct {
	addr          string
	topic, burial string
	broker        *kfake.Cluster // nil on a real Kafka
}

// inProcess returns a fixture on franz-go's in-process broker.
func inProcess(t testing.TB, partitions int32) *kafkaFixture {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "grants"), kfake.SeedTopics(1, "graves"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &kafkaFixture{addr: c.ListenAddrs()[0], topic: "grants", burial: "graves", broker: c}
}

// real returns a fixture on Apache Kafka.
func real(t testing.TB, b *testkit.KafkaBroker, partitions int) *kafkaFixture {
	t.Helper()
	return &kafkaFixture{addr: b.Addr, topic: b.Topic(t, partitions, nil), burial: b.Topic(t, 1, nil)}
}

func (d *kafkaFixture) config(sink Sink) Config {
	cfg := DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Topic, cfg.Group, cfg.Deployment, cfg.DeadLetters = []string{d.addr}, "test", d.topic,
		"g-"+d.topic, "d1", d.burial
	cfg.Sink, cfg.Log = sink, zap.NewNop()
	cfg.MaxWait, cfg.Backoff, cfg.MaxBackoff, cfg.MaxAttempts = 50*time.Millisecond, 2*time.Millisecond,
		20*time.Millisecond, 3
	cfg.SessionTimeout, cfg.DrainTimeout, cfg.CommitTimeout = 6*time.Second, 4*time.Second, 5*time.Second
	return cfg
}

// write appends records. Each goes to the partition of its shard header, or to partition 0 without that header.
func (d *kafkaFixture) write(t testing.TB, partitions int, list ...kafka.Message) {
	t.Helper()
	w := &kafka.Writer{
		Addr: kafka.TCP(d.addr), Topic: d.topic, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
		BatchSize: 1000,
		Transport: &kafka.Transport{}, Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int {
			shard, _ := strconv.Atoi(header(&m, cloudevent.HeaderShard)) // none: 0
			return shard % partitions
		}),
	}
	require.NoError(t, w.WriteMessages(t.Context(), list...))
	require.NoError(t, w.Close())
}

// client returns a kafka-go client. done closes its connections.
func (d *kafkaFixture) client() (c *kafka.Client, done func()) {
	tr := &kafka.Transport{}
	return &kafka.Client{Addr: kafka.TCP(d.addr), Timeout: 5 * time.Second, Transport: tr}, tr.CloseIdleConnections
}

// committed returns the group's committed offset of partition 0; -1 if there is none.
func (d *kafkaFixture) committed(t testing.TB, group string) int64 {
	t.Helper()
	client, done := d.client()
	defer done()
	res, err := client.OffsetFetch(t.Context(),
		&kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{d.topic: {0}}})
	require.NoError(t, err)
	for _, p := range res.Topics[d.topic] { // the in-process broker does not name partitions of an unknown group
		return p.CommittedOffset
	}
	return -1
}

// setOffset sets the group's offset of partition 0, as kafka-consumer-groups.sh --reset-offsets does.
func (d *kafkaFixture) setOffset(t testing.TB, group string, offset int64) {
	t.Helper()
	client, done := d.client()
	defer done()
	testkit.Eventually(t, soon, func() bool { // until the last member has left
		res, err := client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
			Topics: map[string][]kafka.OffsetCommit{d.topic: {{Partition: 0, Offset: offset}}}})
		return err == nil && res.Topics[d.topic][0].Error == nil
	}, "the offset is set")
}

// deleteBefore deletes the records of partition 0 before the offset, as retention does.
func (d *kafkaFixture) deleteBefore(t testing.TB, offset int64) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(d.addr))
	require.NoError(t, err)
	defer c.Close()
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Offset = offset
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: d.topic,
		Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part}}}
	res, err := req.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, res.Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, offset, res.Topics[0].Partitions[0].LowWatermark)
}

// letters reads n dead letters with another client library.
func (d *kafkaFixture) letters(t testing.TB, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(d.addr), kgo.ConsumeTopics(d.burial))
	require.NoError(t, err)
	defer c.Close()
	var out []*kgo.Record
	for len(out) < n {
		f := c.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d dead letters", len(out), n)
		out = append(out, f.Records()...)
	}
	require.Len(t, out, n)
	return out
}

func letterHeader(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// running is a Subscriber whose Run is in progress.
type running struct {
	*Subscriber
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func start(t testing.TB, cfg Config, change ...func(*Subscriber)) *running {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	for _, fn := range change {
		fn(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Subscriber: s, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = s.Run(ctx)
	}()
	t.Cleanup(func() { _ = r.stop() }) // tests that check the error call stop themselves
	return r
}

func (r *running) stop() error {
	r.cancel()
	<-r.ended
	return r.err
}

// effectLog is an effect that counts how often each event had it, in memory or in SQL.
type effectLog struct {
	mu    sync.Mutex
	had   map[string]int // by event
	users map[string]int // the same, by user
	fault func(e *topic.Event) error
}

func newBook() *effectLog { return &effectLog{had: map[string]int{}, users: map[string]int{}} }

func (b *effectLog) note(_ context.Context, e topic.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		if err := b.fault(&e); err != nil {
			return err
		}
	}
	b.had[e.Grant.EventID()]++
	b.users[e.Grant.User]++
	return nil
}

func (b *effectLog) funcSink(t testing.TB) *funcSink {
	t.Helper()
	a, err := NewFuncSink(FuncSinkConfig{Effect: b.note, Timeout: soon})
	require.NoError(t, err)
	sink, ok := a.(*funcSink)
	require.True(t, ok)
	return sink
}

func (b *effectLog) copies() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for k, v := range b.had {
		out[k] = v
	}
	return out
}

// database is a test's own database. Its table of effects has no unique key, so a second effect of an event would
// show.
type database struct {
	*sql.DB
	dialect string
}

func sqliteDB(t testing.TB, path string) *database {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &database{DB: db, dialect: sqLite}
}

func postgresDB(t testing.TB) *database {
	t.Helper()
	db, err := sql.Open("pgx", testkit.Postgres(t))
	require.NoError(t, err)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &database{DB: db, dialect: postgreSQL}
}

// fastServers are the unsafe settings with which testkit's servers are faster.
var fastServers = []string{"fsync", "full_page_writes"}

const effectTable = `CREATE TABLE IF NOT EXISTS effect (event TEXT NOT NULL, amount BIGINT NOT NULL)`

// sink returns a sqlSink whose effect inserts one row per event, or fails with the error of fault.
func (d *database) sink(t testing.TB, fault func(e *topic.Event) error) *sqlSink {
	t.Helper()
	_, err := d.ExecContext(t.Context(), effectTable)
	require.NoError(t, err)
	s, err := NewSQL(t.Context(), SQLConfig{DB: d.DB, Dialect: d.dialect, Name: "g", UnsafeAllow: fastServers,
		Timeout: 20 * time.Second,
		Effect:  rows(fault)})
	require.NoError(t, err)
	sink, ok := s.(*sqlSink)
	require.True(t, ok)
	return sink
}

func rows(fault func(e *topic.Event) error) func(context.Context, *sql.Tx, []topic.Event) error {
	return func(ctx context.Context, tx *sql.Tx, list []topic.Event) error {
		for i := range list {
			if _, err := tx.ExecContext(ctx, `INSERT INTO effect (event, amount) VALUES ($1, $2)`,
				list[i].Grant.EventID(), int64(list[i].Grant.Amount)); err != nil {
				return err
			}
			if fault != nil {
				if err := fault(&list[i]); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// count returns the number of effects, and the number of different events among them.
func (d *database) count(t testing.TB) (effects, distinct int) {
	t.Helper()
	require.NoError(t, d.QueryRowContext(context.Background(), `SELECT count(*), count(DISTINCT event) FROM effect`).Scan(&effects, &distinct))
	return effects, distinct
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "effects.db") }

func id(shard int, seq int64) string { return fmt.Sprintf("%d-%d", shard, seq) }
