package publish

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
)

// Byte positions of the fields of a record batch (format v2), including the 4-byte size in front of the batch.
const (
	atLength      = 4 + 8
	atLeaderEpoch = 4 + 12
	atMagic       = 4 + 16
	atCRC         = 4 + 17
	atAttributes  = 4 + 21 // the CRC covers the batch from here on
	atLastDelta   = 4 + 23
	atFirstTime   = 4 + 27
	atMaxTime     = 4 + 35
	atProducer    = 4 + 43
	atEpoch       = 4 + 51
	atSequence    = 4 + 53
	atCount       = 4 + 57
	headSize      = 4 + 61
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// numbers identify a batch to the broker.
type numbers struct {
	producer int64
	epoch    int16
	sequence int32 // sequence of the first record
}

// batch encodes record batches. It reuses its buffer, so it allocates nothing per record. All records of a batch have
// the same time.
type batch struct {
	message
	buf    []byte
	packed *bytes.Buffer // the last result of pack
	count  int
}

func newBatch(source string) *batch {
	return &batch{message: newMessage(source), packed: &bytes.Buffer{}}
}

// start starts a new batch whose records have the time ms. It reuses the buffer.
func (b *batch) start(n numbers, ms int64) {
	var head [headSize]byte
	be := binary.BigEndian
	be.PutUint32(head[atLeaderEpoch:], ^uint32(0))
	head[atMagic] = 2
	be.PutUint64(head[atFirstTime:], uint64(ms))
	be.PutUint64(head[atMaxTime:], uint64(ms))
	be.PutUint64(head[atProducer:], uint64(n.producer))
	be.PutUint16(head[atEpoch:], uint16(n.epoch))
	be.PutUint32(head[atSequence:], uint32(n.sequence))
	b.buf = append(b.buf[:0], head[:]...)
	b.count = 0
}

// add appends a grant. It returns false, and appends nothing, if the batch would become longer than limit bytes.
func (b *batch) add(g *hongbao.Grant, limit int) bool {
	b.message.encode(g)
	return b.put(g.User, limit)
}

func (b *batch) addFence(n numbers, ms int64) {
	b.message.encodeFence(n, ms)
	b.put("", 1<<30)
}

// largestGrant has every field at its largest. Its ids have only characters that JSON escapes.
var largestGrant = hongbao.Grant{Campaign: strings.Repeat("c", 64), Packet: hongbao.MaxPackets,
	Amount: hongbao.MaxAmount,
	User:   strings.Repeat(`"`, hongbao.MaxIDLength), RequestID: strings.Repeat(`"`, hongbao.MaxIDLength), Currency: "CNY",
	Code: strings.Repeat(`"`, hongbao.MaxCodeLength), Trace: strings.Repeat("0", 55), Shard: 1 << 30, Seq: math.MaxInt64,
	Epoch: math.MaxInt64, Time: time.UnixMilli(1 << 41)}

// addProbe appends a fence record that is as large as the largest grant, by spaces in its value. If the broker accepts
// it, the size of a grant is no reason to refuse the grant.
func (b *batch) addProbe(n numbers, ms int64) {
	before := len(b.buf)
	b.add(&largestGrant, 1<<30)
	size := len(b.buf) - before
	b.buf, b.count = b.buf[:before], b.count-1
	b.addFence(n, ms)
	pad := size - (len(b.buf) - before)
	b.buf, b.count = b.buf[:before], b.count-1
	b.value = append(append(append(b.value[:0], '{'), bytes.Repeat([]byte(" "), pad)...), '}')
	b.put("", 1<<30)
}

func (b *batch) put(key string, limit int) bool {
	size := 1 + 1 + varintSize(int64(b.count)) + // attributes, time delta, offset delta
		varintSize(int64(len(key))) + len(key) +
		varintSize(int64(len(b.value))) + len(b.value) +
		varintSize(int64(b.headerCount)) + len(b.fixed) + len(b.headers)
	if len(b.buf)-4+varintSize(int64(size))+size > limit {
		return false
	}
	p := binary.AppendVarint(b.buf, int64(size))
	p = append(p, 0, 0)
	p = binary.AppendVarint(p, int64(b.count))
	p = binary.AppendVarint(p, int64(len(key)))
	p = append(p, key...)
	p = binary.AppendVarint(p, int64(len(b.value)))
	p = append(p, b.value...)
	p = binary.AppendVarint(p, int64(b.headerCount))
	p = append(p, b.fixed...)
	b.buf = append(p, b.headers...)
	b.count++
	return true
}

// finish returns the complete batch, including its size, as RawProduce expects it. The result is valid until the next
// start.
func (b *batch) finish() []byte {
	be := binary.BigEndian
	be.PutUint32(b.buf[atLastDelta:], uint32(b.count-1))
	be.PutUint32(b.buf[atCount:], uint32(b.count))
	seal(b.buf)
	return b.buf
}

// pack returns the complete batch like finish, but with compressed records. Equal records give equal bytes in every
// worker whose build has the same compressor.
func (b *batch) pack(codec kafka.Compression) ([]byte, error) {
	raw := b.finish()
	if codec == uncompressed {
		return raw, nil
	}
	b.packed.Reset()
	b.packed.Write(raw[:headSize])
	w := codec.Codec().NewWriter(b.packed)
	_, err := w.Write(raw[headSize:])
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "compress %d records with %s: %w", b.count, codec, err)
	}
	raw = b.packed.Bytes()
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(codec))
	seal(raw)
	return raw, nil
}

// seal writes the two lengths and the checksum of a batch.
func seal(raw []byte) {
	be := binary.BigEndian
	be.PutUint32(raw, uint32(len(raw)-4))
	be.PutUint32(raw[atLength:], uint32(len(raw)-atLength-4))
	be.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
}

// forget replaces the buffers, because an abandoned request may still read them.
func (b *batch) forget() { b.buf, b.packed = nil, &bytes.Buffer{} }

// uncompressed is kafka-go's value for "none". kafka-go has no name for it.
const uncompressed kafka.Compression = 0

// parseCodec parses the name of a compression.
func parseCodec(name string) (c kafka.Compression, err error) {
	if name == "none" {
		return uncompressed, nil
	}
	if err := c.UnmarshalText([]byte(name)); err != nil || c == uncompressed || c.String() != name {
		return uncompressed, fmt.Errorf("%.20q is not a compression: want none, gzip, snappy, lz4 or zstd", name)
	}
	return c, nil
}

// codecName returns the name that parseCodec parses.
func codecName(c kafka.Compression) string {
	if c == uncompressed {
		return "none"
	}
	return c.String()
}

// varintSize returns the number of bytes that binary.AppendVarint writes for n >= 0.
func varintSize(n int64) int {
	size := 1
	for u := uint64(n) << 1; u >= 0x80; u >>= 7 {
		size++
	}
	return size
}
