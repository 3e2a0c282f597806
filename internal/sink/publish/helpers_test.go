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

// asciiRange contains the characters of ids.
var asciiRange = &unicode.RangeTable{R16: []unicode.Range16{{Lo: '!', Hi: '~', Stride: 1}}}

func errorsIsForeign(err error) bool { return errors.Is(err, topic.ErrForeign) }

// messageOf returns headers and value of a grant as they are in the topic.
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

// holdsKey reports whether the request's batch has a record with the key. It does not change the request.
func holdsKey(r *rawproduce.Request, key string) bool {
	return contains(r, append([]byte{byte(2 * len(key))}, key...)) // preceded by its varint length
}

func contains(r *rawproduce.Request, needle []byte) bool { return bytes.Contains(rawOf(r), needle) }

// isShow reports whether the request's batch is the first one of a session, which announces the session.
func isShow(r *rawproduce.Request) bool {
	return contains(r, []byte(cloudevent.TypeFence)) && bytes.Equal(rawOf(r)[atEpoch:atCount], make([]byte, atCount-atEpoch))
}

// rawOf returns the request's batch and leaves the request as it was.
func rawOf(r *rawproduce.Request) []byte {
	set := &r.Topics[0].Partitions[0].RecordSet
	raw, err := io.ReadAll(set.Reader)
	if err != nil {
		panic(err)
	}
	set.Reader = bytes.NewReader(raw)
	return raw
}

// flushQuietly sends the late copies, ignores the broker's answers, and returns the number of copies.
func (w *wire) flushQuietly() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.late)
	for _, send := range w.late {
		_ = send() // a refusal comes as an answer, and no caller waits for it any more
	}
	w.late = nil
	return n
}

// kgoHeader is the header type of both clients.
type kgoHeader = kafka.Header
