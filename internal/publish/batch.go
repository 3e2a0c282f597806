package publish

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/hongbao-project/hongbao"
)

// Where the fields of a record batch v2 stand, counted from the size that Kafka puts before it.
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

// numbers are what the broker knows a batch by.
type numbers struct {
	producer int64
	epoch    int16
	sequence int32 // of the first record
}

// batch encodes record batches into a buffer that it keeps: no allocation per record. All records have one time.
type batch struct {
	message
	buf   []byte
	count int
}

func newBatch(source string) *batch {
	return &batch{message: newMessage(source)}
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
}

// add appends a grant, unless the batch would be longer than limit bytes then.
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

// finish gives the whole batch, size included, as RawProduce wants it. It is valid until the next start.
func (b *batch) finish() []byte {
	be := binary.BigEndian
	be.PutUint32(b.buf, uint32(len(b.buf)-4))
	be.PutUint32(b.buf[atLength:], uint32(len(b.buf)-atLength-4))
	be.PutUint32(b.buf[atLastDelta:], uint32(b.count-1))
	be.PutUint32(b.buf[atCount:], uint32(b.count))
	be.PutUint32(b.buf[atCRC:], crc32.Checksum(b.buf[atAttributes:], castagnoli))
	return b.buf
}

// forget gives the buffer up: an abandoned request may still be reading it.
func (b *batch) forget() { b.buf = nil }

// varintSize is how many bytes binary.AppendVarint takes for n >= 0.
func varintSize(n int64) int {
	size := 1
	for u := uint64(n) << 1; u >= 0x80; u >>= 7 {
		size++
	}
	return size
}
