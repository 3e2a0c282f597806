package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const partitions = 4

// publishRow compares package consumer and the publisher with three other ways to send the same grants to Kafka: a bare
// loop over the same entries, kafka-go's Writer, and, for each compression, franz-go's idempotent producer. The last
// two send messages from memory.
func publishRow(ctx context.Context, o options) ([]Result, error) {
	b, err := newPublishBench(ctx, o.n(200_000))
	if err != nil {
		return nil, err
	}
	results, err := b.rows(ctx, o.rounds)
	return results, errors.Join(err, b.close())
}

func (b *publishBench) rows(ctx context.Context, rounds int) ([]Result, error) {
	runs := []func(context.Context) (float64, error){b.bare, b.writer}
	for _, c := range compressions {
		runs = append(runs, b.ours(c), b.franz(c))
	}
	rates, err := inTurn(ctx, rounds, runs...)
	if err != nil {
		return nil, err
	}
	bare, writer, byCompression := rates[0], rates[1], rates[2:]
	ours := fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the publisher, with claims, "+
		"stored batches, leases and done bits", b.n, shardCount)
	results := []Result{{
		Name: "publish_kafka", Unit: "grants/s", Want: 0.7, HowOurs: ours,
		HowBaseline: fmt.Sprintf("%d goroutines on the same entries: XREADGROUP of %d grants, encode by kafka-go's "+
			"RecordSet, RawProduce with acks=all, XACK", shardCount, batch),
	}, {
		Name: "publish_kafka_writer", Unit: "grants/s", Want: 0.45, HowOurs: ours,
		HowBaseline: "kafka-go's Writer, acks=all, batches of 1,000, 4 goroutines. The messages come from memory: the baseline " +
			"reads no stream and acks nothing",
	}}
	results[0].compare(byCompression[0], bare)
	results[1].compare(byCompression[0], writer)
	for i, c := range compressions {
		res := Result{
			Name: "publish_kafka_franz_" + c, Unit: "grants/s", Want: 0.7, HowOurs: ours + "; compression " + c,
			HowBaseline: "franz-go's idempotent producer, acks=all, compression " + c + ", to as many partitions. The records are made before the clock starts, and sent four times: the baseline " +
				"reads no stream, encodes no JSON and acks nothing",
		}
		res.compare(byCompression[2*i], byCompression[2*i+1])
		results = append(results, res)
	}
	return results, nil
}

// compressions are the compressions that the rows compare. Rows without a compression in their names use the first.
var compressions = []string{"none", "lz4", "zstd"}

type publishBench struct {
	fixture *fixture
	broker  *testkit.KafkaBroker
	n       int
	runs    int
}

// newPublishBench starts Redis and Kafka. It first runs kafka-go's Writer once without measuring, because the broker is
// slow until its JVM has compiled its code.
func newPublishBench(ctx context.Context, n int) (*publishBench, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	broker, err := testkit.StartKafka(ctx, testkit.KafkaOptions{Java: []string{"-XX:TieredStopAtLevel=4"}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start kafka: %w", err), r.close())
	}
	b := &publishBench{fixture: r, broker: broker, n: n}
	if _, err := b.writer(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *publishBench) close() error { return errors.Join(b.broker.Close(), b.fixture.close()) }

// fresh creates the events of one run, and an empty topic for them.
func (b *publishBench) fresh(ctx context.Context) (*store.Store, string, error) {
	st, _, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return nil, "", err
	}
	topic, err := b.topic(ctx)
	return st, topic, err
}

func (b *publishBench) topic(ctx context.Context) (string, error) {
	b.runs++
	name := "bench-" + strconv.Itoa(b.runs)
	return name, b.broker.CreateTopic(ctx, name, partitions, nil)
}

// ours returns a function that publishes the events of a run with the given compression.
func (b *publishBench) ours(compression string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		st, topic, err := b.fresh(ctx)
		if err != nil {
			return 0, err
		}
		p, err := b.sink(st, topic, compression)
		if err != nil {
			return 0, err
		}
		defer p.Close()
		return b.fixture.consume(ctx, st, "kafka", b.n, p)
	}
}

// sink returns a publisher for the consumers of group kafka.
func (b *publishBench) sink(st *store.Store, topic, compression string) (*publish.Publisher, error) {
	return b.publisher(st, topic, "kafka", compression, st)
}

// franzTimes is how often franz-go produces all records. Producing them once takes less than half a second, so the
// measured rate would be mostly noise.
const franzTimes = 4

// franz returns a function that produces records from memory as fast as franz-go can without losing records.
func (b *publishBench) franz(compression string) func(context.Context) (float64, error) {
	codec := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression()}[compression]
	return func(ctx context.Context) (float64, error) {
		topic, err := b.topic(ctx)
		if err != nil {
			return 0, err
		}
		c, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr), kgo.DefaultProduceTopic(topic),
			kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(b.n))
		if err != nil {
			return 0, fmt.Errorf("make franz-go's client: %w", err)
		}
		defer c.Close()
		took := time.Duration(0)
		for range franzTimes {
			records := franzRecords(b.n)
			start := time.Now()
			if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
				return 0, fmt.Errorf("produce by franz-go: %w", err)
			}
			took += time.Since(start)
		}
		return float64(franzTimes*b.n) / took.Seconds(), nil
	}
}

// franzRecords returns the messages of n grants as franz-go's records.
func franzRecords(n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i, m := range fromMemory(0, n) {
		records[i] = &kgo.Record{Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return records
}

func (b *publishBench) bare(ctx context.Context) (float64, error) {
	st, topic, err := b.fresh(ctx)
	if err != nil {
		return 0, err
	}
	transport := &kafka.Transport{} // the default transport would not know the new topic yet
	defer transport.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(b.broker.Addr), Timeout: 20 * time.Second, Transport: transport}
	id, err := c.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err = errors.Join(err, id.Error); err != nil {
		return 0, fmt.Errorf("take a producer id: %w", err)
	}
	var next [shardCount]int32
	return b.fixture.bareLoop(ctx, st, "bare", b.n, func(ctx context.Context, shard int,
		grants []hongbao.Grant) error {
		raw, err := encodeBare(id.Producer, next[shard], grants)
		if err != nil {
			return err
		}
		res, err := c.RawProduce(ctx, &kafka.RawProduceRequest{
			Topic: topic, Partition: shard % partitions, RequiredAcks: kafka.RequireAll,
			RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(raw)},
		})
		if err != nil {
			return err
		}
		next[shard] += int32(len(grants))
		return res.Error
	})
}

// message returns the value and the headers of a grant, encoded without optimization.
func message(g *hongbao.Grant) ([]byte, []protocol.Header) {
	at := g.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	value := fmt.Sprintf(`{"campaign":%q,"packet":%d,"user":%q,"amount":%d,"shard":%d,"seq":%d,"epoch":%d,`+
		`"time":%q,"request_id":%q}`,
		g.Campaign, g.Packet, g.User, g.Amount, g.Shard, g.Seq, g.Epoch, at, g.RequestID)
	h := func(k, v string) protocol.Header { return protocol.Header{Key: k, Value: []byte(v)} }
	return []byte(value), []protocol.Header{
		h("ce_specversion", "1.0"), h("ce_id", g.EventID()), h("ce_source", "/hongbao/bench"),
		h("ce_type", "hongbao.grant.v1"),
		h("ce_time", at), h("content-type", "application/json"), h("shard", strconv.Itoa(g.Shard)),
		h("seq", strconv.FormatInt(g.Seq, 10)), h("epoch", strconv.FormatInt(g.Epoch, 10)),
	}
}

// encodeBare encodes one idempotent batch with kafka-go's own encoder, as docs/design/kafka.md describes.
func encodeBare(p *kafka.ProducerSession, seq int32, grants []hongbao.Grant) ([]byte, error) {
	records := make([]protocol.Record, len(grants))
	now := time.Now()
	for i := range grants {
		value, headers := message(&grants[i])
		records[i] = protocol.Record{Time: now, Key: protocol.NewBytes([]byte(grants[i].User)),
			Value: protocol.NewBytes(value), Headers: headers}
	}
	set := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)}
	var buf bytes.Buffer
	if _, err := set.WriteTo(&buf); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	raw := buf.Bytes()
	b := raw[4:]
	binary.BigEndian.PutUint64(b[43:], uint64(p.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(p.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], uint32(seq))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw, nil
}

func (b *publishBench) writer(ctx context.Context) (float64, error) {
	topic, err := b.topic(ctx)
	if err != nil {
		return 0, err
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Transport: transport,
		Addr:      kafka.TCP(b.broker.Addr), Topic: topic, Balancer: &kafka.Hash{}, BatchSize: 1000,
		BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: kafka.RequireAll,
	}
	const writers, chunk = 4, 4000
	errs := make([]error, writers)
	var wg sync.WaitGroup
	start := time.Now()
	for k := range writers {
		wg.Go(func() {
			for i := k * b.n / writers; i < (k+1)*b.n/writers && errs[k] == nil; i += chunk {
				errs[k] = w.WriteMessages(ctx, fromMemory(i, min(i+chunk, (k+1)*b.n/writers))...)
			}
		})
	}
	wg.Wait()
	rate := float64(b.n) / time.Since(start).Seconds()
	return rate, errors.Join(errors.Join(errs...), w.Close())
}

func fromMemory(from, to int) []kafka.Message {
	out := make([]kafka.Message, 0, to-from)
	for i := from; i < to; i++ {
		g := hongbao.Grant{Seq: int64(i + 1), Epoch: 1, Campaign: "bench-0", Packet: int64(i + 1), Amount: 500, User: user(i),
			RequestID: "r00001", Time: time.Now()}
		value, headers := message(&g)
		out = append(out, kafka.Message{Key: []byte(g.User), Value: value, Headers: headers})
	}
	return out
}
