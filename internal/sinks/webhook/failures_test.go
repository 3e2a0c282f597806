package webhook

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newFailures() (f *failures, now *time.Time) {
	now = new(time.Unix(1_770_000_000, 0))
	return &failures{now: func() time.Time { return *now }}, now
}

// fail has one call in which the events fail, without another answer meanwhile.
func (f *failures) fail(ids ...string) []concern {
	began := map[string]int64{}
	for _, id := range ids {
		began[id] = f.begin()
	}
	concerns := f.judge(began)
	var list []concern
	for _, id := range ids {
		list = append(list, concerns[id])
	}
	return list
}

func TestFailures(t *testing.T) {
	t.Parallel()
	f, now := newFailures()
	for range 3 {
		require.Equal(t, []concern{unclear}, f.fail("a"), "no other event was tried")
	}
	require.Equal(t, []concern{allEvents}, f.fail("b"), "a fails too")
	require.Equal(t, []concern{allEvents, allEvents}, f.fail("a", "b"), "an outage counts no attempt, however long it lasts")
	f.accept("c")
	require.Equal(t, []concern{thisEvent}, f.fail("a"), "c was accepted since")
	require.Equal(t, []concern{unclear}, f.fail("a"), "none was accepted since the last attempt")
	require.Equal(t, []concern{thisEvent}, f.fail("b"))
	require.Equal(t, []concern{allEvents}, f.fail("a"))
	*now = now.Add(recentFailure + 1)
	require.Equal(t, []concern{unclear}, f.fail("a"), "b may have become a dead letter long ago")
	f.accept("a")
	require.Equal(t, []concern{unclear}, f.fail("d"))
}

// An event was accepted between the begin and the end of a try.
func TestAcceptedMeanwhile(t *testing.T) {
	t.Parallel()
	f, _ := newFailures()
	began := map[string]int64{"a": f.begin()}
	f.accept("b")
	require.Equal(t, thisEvent, f.judge(began)["a"])
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	f, _ := newFailures()
	began := map[string]int64{}
	for i := range maxFailures {
		began[fmt.Sprint(i)] = 0
	}
	f.judge(began)
	require.Len(t, f.last, maxFailures)
	require.Equal(t, []concern{unclear}, f.fail("a"))
	require.Len(t, f.last, 1)
}

// The receiver has a bug in one event. The event first waits, and then uses up attempts. All others are accepted.
func TestOneEventFails(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Webhook-Id") == "rain-1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := newHandler(t, r, oneAtATime)
	require.Equal(t, []string{"waiting"}, kinds(h.handle(t.Context(), grants(1, 1))))
	require.Equal(t, []string{"unknown", "done", "done"}, kinds(h.handle(t.Context(), grants(1, 3))))
	require.Equal(t, []string{"waiting"}, kinds(h.handle(t.Context(), grants(1, 1))))
	require.Nil(t, h.handle(t.Context(), grants(4, 4)))
	require.Equal(t, []string{"unknown"}, kinds(h.handle(t.Context(), grants(1, 1))))
}
