package publish

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
)

// Positions of the fields of a record batch v2, counted from the size that Kafka puts before it.
const (
	atLength      = 4 + 8
	atLeaderEpoch = 4 + 12
	atMagic       = 4 + 16
	atCRC         = 4 + 17
	atAttributes  = 4 + 21 // the CRC covers everything from here
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

// numbers identify a batch for the broker.
type numbers struct {
	producer int64
	epoch    int16
	sequence int32 // of the first record
}

// batch encodes record batches into a buffer that it keeps: no allocation per record. All records have the same time.
type batch struct {
	message
	buf    []byte
	packed *bytes.Buffer // the last result of pack
	count  int
}

func newBatch(source string) *batch {
	return &batch{message: newMessage(source), packed: &bytes.Buffer{}}
}

// start begins a batch whose records have the time ms. The buffer's memory is used again.
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
	b.parents = true
}

// startAgain begins a stored batch. Its records have no header traceparent. A build before that header may have cut the
// batch at the size limit, and the broker drops a copy only if it has the same number of records.
func (b *batch) startAgain(n numbers, ms int64) {
	b.start(n, ms)
	b.parents = false
}

// add appends a grant, unless that would make the batch longer than limit bytes.
func (b *batch) add(g *hongbao.Grant, limit int) bool {
	b.message.encode(g)
	return b.put(g.User, limit)
}

// addFence appends a fence record.
func (b *batch) addFence(n numbers, ms int64) {
	b.message.encodeFence(n, ms)
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

// finish returns the whole batch, size included, as RawProduce expects it. It is valid until the next start.
func (b *batch) finish() []byte {
	be := binary.BigEndian
	be.PutUint32(b.buf[atLastDelta:], uint32(b.count-1))
	be.PutUint32(b.buf[atCount:], uint32(b.count))
	seal(b.buf)
	return b.buf
}

// pack is finish with the records compressed. Equal records become equal bytes, in any worker whose build has the same
// compressor.
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

// seal writes the lengths and the checksum of a batch.
func seal(raw []byte) {
	be := binary.BigEndian
	be.PutUint32(raw, uint32(len(raw)-4))
	be.PutUint32(raw[atLength:], uint32(len(raw)-atLength-4))
	be.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
}

// forget drops the buffers: an abandoned request may still be reading one.
func (b *batch) forget() { b.buf, b.packed = nil, &bytes.Buffer{} }

// uncompressed is kafka-go's compression "none", which has no name there.
const uncompressed kafka.Compression = 0

// parseCodec reads the name of a compression.
func parseCodec(name string) (c kafka.Compression, err error) {
	if name == "none" {
		return uncompressed, nil
	}
	if err := c.UnmarshalText([]byte(name)); err != nil || c == uncompressed || c.String() != name {
		return uncompressed, fmt.Errorf("%.20q is not a compression: want none, gzip, snappy, lz4 or zstd", name)
	}
	return c, nil
}

// varintSize returns how many bytes binary.AppendVarint needs for n >= 0.
func varintSize(n int64) int {
	size := 1
	for u := uint64(n) << 1; u >= 0x80; u >>= 7 {
		size++
	}
	return size
}
