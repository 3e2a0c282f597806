package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// stalled is a body that never arrives.
type stalled struct{}

func (stalled) Read([]byte) (int, error) { return 0, errors.New("the client has gone") }
func (stalled) Close() error             { return nil }

// A body that is announced but never arrives takes no memory.
func TestABodyTakesMemoryAsItArrives(t *testing.T) {
	const announced, tries = 1 << 20, 100
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = stalled{}, announced
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range tries {
		_, err := readAll(httptest.NewRecorder(), r, announced)
		require.Error(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/tries, uint64(64<<10))
}
