package publish

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// golden encodes the grants with kafka-go's own encoder, and then sets the producer id, epoch and sequence.
func golden(t require.TestingT, n numbers, ms int64, grants []hongbao.Grant) []byte {
	var records []protocol.Record
	for i := range grants {
		m := newMessage("/hongbao/d1")
		m.encode(&grants[i])
		when := grants[i].Time.Format(cloudevent.TimeLayout)
		headers := []protocol.Header{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_source", Value: []byte("/hongbao/d1")},
			{Key: "ce_type", Value: []byte("hongbao.grant.v1")}, {Key: "content-type", Value: []byte("application/json")},
			{Key: "ce_id", Value: []byte(grants[i].EventID())}, {Key: "ce_time", Value: []byte(when)},
			{Key: "shard", Value: []byte(decimal(int64(grants[i].Shard)))}, {Key: "seq", Value: []byte(decimal(grants[i].Seq))},
			{Key: "epoch", Value: []byte(decimal(grants[i].Epoch))},
		}
		if grants[i].Trace != "" {
			headers = append(headers, protocol.Header{Key: "ce_traceparent", Value: []byte(grants[i].Trace)},
				protocol.Header{Key: "traceparent", Value: []byte(grants[i].Trace)})
		}
		records = append(records, protocol.Record{
			Time: time.UnixMilli(ms), Key: protocol.NewBytes([]byte(grants[i].User)), Value: protocol.NewBytes(m.value),
			Headers: headers,
		})
	}
	var buf bytes.Buffer
	set := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)}
	_, err := set.WriteTo(&buf)
	require.NoError(t, err)
	raw := buf.Bytes()
	binary.BigEndian.PutUint64(raw[4+43:], uint64(n.producer))
	binary.BigEndian.PutUint16(raw[4+51:], uint16(n.epoch))
	binary.BigEndian.PutUint32(raw[4+53:], uint32(n.sequence))
	binary.BigEndian.PutUint32(raw[4+17:], crc32.Checksum(raw[4+21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func drawID(t *rapid.T, label string) string {
	id := rapid.StringOfN(rapid.RuneFrom(nil, asciiRange), 1, hongbao.MaxIDLength, -1).Draw(t, label)
	if id == "-" {
		return "_"
	}
	return id
}

func drawGrant(t *rapid.T) hongbao.Grant {
	g := hongbao.Grant{
		Shard: rapid.IntRange(0, 1023).Draw(t, "shard"), Seq: rapid.Int64Range(1, 1<<53-1).Draw(t, "seq"),
		Epoch: rapid.Int64Range(1, 1<<53-1).Draw(t, "epoch"), Campaign: rapid.StringMatching(`[a-z][a-z0-9_-]{0,63}`).Draw(t, "campaign"),
		Packet: rapid.Int64Range(1, 1<<53-1).Draw(t, "packet"),
		Amount: hongbao.Amount(rapid.Int64Range(0, 1<<53-1).Draw(t, "amount")),
		User:   drawID(t, "user"), Time: time.UnixMilli(rapid.Int64Range(1, 253402300799999).Draw(t, "ms")).UTC(),
	}
	if rapid.Bool().Draw(t, "has request id") {
		g.RequestID = drawID(t, "request id")
	}
	if rapid.Bool().Draw(t, "has trace") {
		g.Trace = drawID(t, "trace")
	}
	if rapid.Bool().Draw(t, "has currency") {
		g.Currency = rapid.StringMatching(`[A-Z]{3}`).Draw(t, "currency")
	}
	if rapid.Bool().Draw(t, "has code") {
		g.Code = rapid.StringMatching(`[!-~]{1,64}`).Draw(t, "code")
	}
	return g
}

func TestBatchIsByteForByteKafkaGos(t *testing.T) {
	t.Parallel()
	b := newBatch("/hongbao/d1") // shared by all cases, so that its buffer is reused
	rapid.Check(t, func(t *rapid.T) {
		grants := rapid.SliceOfN(rapid.Custom(drawGrant), 1, 150).Draw(t, "grants")
		n := numbers{rapid.Int64Range(0, 1<<62).Draw(t, "producer"), int16(rapid.IntRange(0, maxEpoch).Draw(t, "epoch")),
			rapid.Int32Min(0).Draw(t, "seq")}
		ms := rapid.Int64Range(1, 1<<42).Draw(t, "ms")
		b.start(n, ms)
		for i := range grants {
			require.True(t, b.add(&grants[i], 1<<30))
		}
		require.Equal(t, golden(t, n, ms, grants), b.finish())
	})
}

func TestBatchReadsBackInTwoOtherDecoders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		grants := rapid.SliceOfN(rapid.Custom(drawGrant), 1, 20).Draw(t, "grants")
		b := newBatch("/hongbao/d1")
		b.start(numbers{77, 3, 12}, 1763715000123)
		for i := range grants {
			require.True(t, b.add(&grants[i], 1<<30))
		}
		raw := b.finish()

		var k kmsg.RecordBatch
		require.NoError(t, k.ReadFrom(raw[4:]))
		require.EqualValues(t, 77, k.ProducerID)
		require.EqualValues(t, 3, k.ProducerEpoch)
		require.EqualValues(t, 12, k.FirstSequence)
		require.EqualValues(t, len(grants), k.NumRecords)
		require.EqualValues(t, len(raw)-4-12, k.Length)

		requireReadsBack(t, raw, grants)
	})
}

// requireReadsBack decodes a batch with kafka-go's decoder and compares its records with the grants.
func requireReadsBack(t require.TestingT, raw []byte, grants []hongbao.Grant) {
	var set protocol.RecordSet
	_, err := set.ReadFrom(bytes.NewReader(raw))
	require.NoError(t, err)
	var r record
	for i := range grants {
		one, err := set.Records.ReadRecord()
		require.NoError(t, err)
		require.NoError(t, r.set(one))
		e, err := topic.DecodeMessage(r.headers, r.key, r.value)
		require.NoError(t, err)
		require.Equal(t, topic.Event{Grant: grants[i], Source: "/hongbao/d1"}, e)
	}
}

func TestBatchStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 1, Campaign: "c", Packet: 1, User: "u", Time: time.UnixMilli(1)}
	b := newBatch("/hongbao/d1")
	b.start(numbers{}, 1)
	require.True(t, b.add(&g, 1<<20))
	one := len(b.finish()) - 4
	b.start(numbers{}, 1)
	require.True(t, b.add(&g, one), "a batch may be as long as the limit")
	require.False(t, b.add(&g, 2*one-headSize), "a byte too much")
	require.Equal(t, one, len(b.finish())-4, "the refused grant left no bytes")
	b.start(numbers{}, 1)
	require.False(t, b.add(&g, one-1))
}

func TestLargestGrantFitsTheSmallestBatch(t *testing.T) {
	t.Parallel()
	id := strings.Repeat(`"`, hongbao.MaxIDLength)
	g := hongbao.Grant{
		Shard: 1023, Seq: 1<<53 - 1, Epoch: 1<<53 - 1, Campaign: strings.Repeat("c", 64),
		Packet: 1<<53 - 1,
		Amount: hongbao.MaxAmount, User: id, RequestID: id, Trace: id, Time: time.UnixMilli(253402300799999),
	}
	b := newBatch(cloudevent.SourcePrefix + strings.Repeat("d", 64))
	b.start(numbers{}, 1)
	require.True(t, b.add(&g, 8<<10))
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 2, Campaign: "c", Packet: 1, Amount: 3, User: "u", RequestID: "r",
		Time: time.UnixMilli(1).UTC()}
	headers, value := messageOf(t, &g)
	_, err := topic.DecodeMessage(headers, []byte("u"), value)
	require.NoError(t, err)
	with := func(name, v string) []kafka.Header {
		out := append([]kafka.Header(nil), headers...)
		for i := range out {
			if out[i].Key == name {
				out[i].Value = []byte(v)
			}
		}
		return out
	}
	replace := func(from, to string) []byte {
		require.Contains(t, string(value), from)
		return bytes.Replace(value, []byte(from), []byte(to), 1)
	}
	for name, c := range map[string]struct {
		headers    []kafka.Header
		key, value []byte
		foreign    bool
	}{
		"no headers":    {nil, []byte("u"), value, true},
		"other type":    {with("ce_type", "x"), []byte("u"), value, true},
		"other source":  {with("ce_source", "/other/d1"), []byte("u"), value, true},
		"other version": {with("ce_specversion", "0.3"), []byte("u"), value, true},
		"other id":      {with("ce_id", "1-6"), []byte("u"), value, false},
		"other seq":     {with("seq", "6"), []byte("u"), value, false},
		"other shard":   {with("shard", "01"), []byte("u"), value, false},
		"other epoch":   {with("epoch", "1"), []byte("u"), value, false},
		"other time":    {with("ce_time", "1970-01-01T00:00:00.002Z"), []byte("u"), value, false},
		"other content": {with("content-type", "text/plain"), []byte("u"), value, false},
		"header twice":  {append(with("", ""), kafka.Header{Key: "seq", Value: []byte("5")}), []byte("u"), value, false},
		"bad trace": {append(with("", ""), kafka.Header{Key: "ce_traceparent", Value: []byte("a b")}), []byte("u"),
			value, false},
		"other key":       {headers, []byte("v"), value, false},
		"no key":          {headers, nil, value, false},
		"no value":        {headers, []byte("u"), nil, false},
		"not JSON":        {headers, []byte("u"), []byte("{"), false},
		"no amount":       {headers, []byte("u"), replace(`"amount":3,`, ""), false},
		"negative amount": {headers, []byte("u"), replace(`"amount":3`, `"amount":-3`), false},
		"fraction":        {headers, []byte("u"), replace(`"amount":3`, `"amount":3.5`), false},
		"too much":        {headers, []byte("u"), replace(`"amount":3`, `"amount":9007199254740992`), false},
		"no packet":       {headers, []byte("u"), replace(`"packet":1,`, ""), false},
		"bad campaign":    {headers, []byte("u"), replace(`"campaign":"c"`, `"campaign":"C"`), false},
		"bad request id":  {headers, []byte("u"), replace(`"request_id":"r"`, `"request_id":"a b"`), false},
		"no shard":        {headers, []byte("u"), replace(`"shard":1,`, ""), false},
		"bad time":        {with("ce_time", "now"), []byte("u"), replace("1970-01-01T00:00:00.001Z", "now"), false},
	} {
		_, err := topic.DecodeMessage(c.headers, c.key, c.value)
		require.Error(t, err, name)
		require.Equal(t, c.foreign, errorsIsForeign(err), name)
		if !c.foreign {
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), name)
		}
	}
	_, err = topic.DecodeMessage(headers, []byte("u"), replace(`"amount":3`, `"amount":3,"currency":"CNY"`))
	require.NoError(t, err, "fields may be added")
}

func TestFenceRecordIsForeign(t *testing.T) {
	t.Parallel()
	b := newBatch("/hongbao/d1")
	b.start(numbers{5, 1, 0}, 1000)
	b.addFence(numbers{5, 1, 0}, 1000)
	r := firstRecord(t, b.finish())
	_, err := topic.DecodeMessage(r.headers, r.key, r.value)
	require.ErrorIs(t, err, topic.ErrForeign)
	require.True(t, json.Valid(r.value))
}

func BenchmarkEncode(b *testing.B) {
	g := hongbao.Grant{Shard: 1, Seq: 123456, Epoch: 1, Campaign: "spring-2026", Packet: 4711, Amount: 888,
		User: "user-00012345", RequestID: "r-1234567890",
		Time: time.UnixMilli(1763715000123)}
	x := newBatch("/hongbao/d1")
	b.ReportAllocs()
	for b.Loop() {
		x.start(numbers{1, 0, 0}, 1763715000123)
		for range 1000 {
			x.add(&g, 1<<30)
		}
		b.SetBytes(int64(len(x.finish())))
	}
}
