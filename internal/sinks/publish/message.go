package publish

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

// message encodes one message at a time: its value and its headers. The headers that are the same in every message are
// encoded once.
type message struct {
	fixedGrant, fixedFence []byte
	fixedCount             int

	fixed       []byte
	value       []byte
	headers     []byte
	headerCount int

	when   []byte // whenMS as RFC 3339, cached because all grants of an entry have the same time
	whenMS int64
	number []byte
}

func newMessage(source string) message {
	m := message{whenMS: -1 << 62, fixedCount: 4}
	m.fixedGrant = fixedHeaders(source, cloudevent.TypeGrant)
	m.fixedFence = fixedHeaders(source, cloudevent.TypeFence)
	return m
}

// addFounding adds the header with the deployment's founding to all messages.
func (m *message) addFounding(founding string) {
	if founding != "" {
		m.fixedGrant = appendHeader(m.fixedGrant, cloudevent.HeaderFounding, founding)
		m.fixedFence = appendHeader(m.fixedFence, cloudevent.HeaderFounding, founding)
		m.fixedCount++
	}
}

func fixedHeaders(source, kind string) []byte {
	b := appendHeader(nil, cloudevent.HeaderSpecVersion, cloudevent.SpecVersion)
	b = appendHeader(b, cloudevent.HeaderSource, source)
	b = appendHeader(b, cloudevent.HeaderType, kind)
	return appendHeader(b, cloudevent.HeaderContentType, cloudevent.ContentType)
}

func appendHeader[V string | []byte](b []byte, name string, value V) []byte {
	b = binary.AppendVarint(b, int64(len(name)))
	b = append(b, name...)
	b = binary.AppendVarint(b, int64(len(value)))
	return append(b, value...)
}

func (m *message) numberHeader(name string, n int64) {
	m.number = strconv.AppendInt(m.number[:0], n, 10)
	m.headers = appendHeader(m.headers, name, m.number)
}

func (m *message) setTime(ms int64) {
	if ms != m.whenMS {
		m.when = cloudevent.AppendTime(m.when[:0], time.UnixMilli(ms))
		m.whenMS = ms
	}
}

// encode encodes the message of a grant.
func (m *message) encode(g *hongbao.Grant) {
	m.setTime(g.Time.UnixMilli())
	m.fixed = m.fixedGrant

	m.number = strconv.AppendInt(m.number[:0], int64(g.Shard), 10)
	m.number = append(m.number, '-')
	m.number = strconv.AppendInt(m.number, g.Seq, 10)
	m.headers = appendHeader(m.headers[:0], cloudevent.HeaderID, m.number)
	m.headers = appendHeader(m.headers, cloudevent.HeaderTime, m.when)
	m.numberHeader(cloudevent.HeaderShard, int64(g.Shard))
	m.numberHeader(cloudevent.HeaderSeq, g.Seq)
	m.numberHeader(cloudevent.HeaderEpoch, g.Epoch)
	m.headerCount = m.fixedCount + 5
	if g.Trace != "" {
		m.headers = appendHeader(m.headers, cloudevent.HeaderTrace, g.Trace)
		m.headers = appendHeader(m.headers, cloudevent.HeaderParent, g.Trace)
		m.headerCount += 2
	}

	m.value = cloudevent.AppendGrant(m.value[:0], g, m.when)
}

// encodeFence encodes a fence record. Its id contains the epoch that it introduces.
func (m *message) encodeFence(n numbers, ms int64) {
	m.setTime(ms)
	m.fixed = m.fixedFence
	m.number = strconv.AppendInt(append(m.number[:0], "fence-"...), n.producer, 10)
	m.number = strconv.AppendInt(append(m.number, '-'), int64(n.epoch), 10)
	m.headers = appendHeader(m.headers[:0], cloudevent.HeaderID, m.number)
	m.headers = appendHeader(m.headers, cloudevent.HeaderTime, m.when)
	m.headerCount = m.fixedCount + 2
	m.value = append(m.value[:0], "{}"...)
}
