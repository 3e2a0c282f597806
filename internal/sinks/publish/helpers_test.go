package publish

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"unicode"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// asciiRange is the range of characters that ids may contain.
var asciiRange = &unicode.RangeTable{R16: []unicode.Range16{{Lo: '!', Hi: '~', Stride: 1}}}

func errorsIsForeign(err error) bool { return errors.Is(err, topic.ErrForeign) }

// messageOf returns the headers and the value of the grant's record.
func messageOf(t testing.TB, g *hongbao.Grant) ([]kafka.Header, []byte) {
	t.Helper()
	b := newBatch("/hongbao/d1")
	b.start(numbers{}, 1)
	require.True(t, b.add(g, 1<<20))
	r := firstRecord(t, b.finish())
	return r.headers, r.value
}

func firstRecord(t testing.TB, raw []byte) record {
	t.Helper()
	var set protocol.RecordSet
	_, err := set.ReadFrom(bytes.NewReader(raw))
	require.NoError(t, err)
	one, err := set.Records.ReadRecord()
	require.NoError(t, err)
	var r record
	require.NoError(t, r.set(one))
	return r
}

// holdsKey reports whether the request's batch has a record with the key.
func holdsKey(r *rawproduce.Request, key string) bool {
	return contains(r, append([]byte{byte(2 * len(key))}, key...)) // in a record, the key follows its varint length
}

func contains(r *rawproduce.Request, needle []byte) bool { return bytes.Contains(rawOf(r), needle) }

// isAnnouncement reports whether the request is a session's first record, which makes the session visible.
func isAnnouncement(r *rawproduce.Request) bool {
	return contains(r, []byte(cloudevent.TypeFence)) && bytes.Equal(rawOf(r)[atEpoch:atCount], make([]byte, atCount-atEpoch))
}

// rawOf returns the request's batch. The request can still be sent afterwards.
func rawOf(r *rawproduce.Request) []byte {
	set := &r.Topics[0].Partitions[0].RecordSet
	raw, err := io.ReadAll(set.Reader)
	if err != nil {
		panic(err)
	}
	set.Reader = bytes.NewReader(raw)
	return raw
}

// flushQuietly sends the deferred copies and ignores the broker's responses. It returns the number of copies.
func (w *wire) flushQuietly() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.late)
	for _, send := range w.late {
		_ = send() // the caller of the original request is gone, so its result does not matter
	}
	w.late = nil
	return n
}

// kgoHeader is kafka-go's header type; the tests convert franz-go's headers to it.
type kgoHeader = kafka.Header
