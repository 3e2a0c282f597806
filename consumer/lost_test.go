package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// stubborn returns a sink that always makes the given events wait, and takes all others.
func stubborn(seqs ...int64) *sink {
	no := map[int64]bool{}
	for _, seq := range seqs {
		no[seq] = true
	}
	return newSink(failing(func(seq int64) error {
		if no[seq] {
			return hongbao.Waitingf("not yet") // takes no attempt
		}
		return nil
	}))
}

// One grant stays parked. It must not make grabs busy, and finished entries behind it must leave the stream.
func TestOneParkedGrantMakesNobodyWait(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	const packets = 300
	grab := b.rain(t, packets, 10)
	w := start(t, b.config(t, "w", stubborn(3)))
	tr, _ := b.trimmer(t, group)
	stop := testkit.Go(t, tr.Run)
	granted := 0
	testkit.Eventually(t, soon, func() bool {
		if grab() == hongbao.OutcomeGranted {
			granted++
		}
		return granted == packets
	}, "grabs continue beside the parked grant")
	testkit.Eventually(t, soon, func() bool {
		return w.Stats().Done == packets-1 && b.length(t) < 20 && b.meta(t, "finished") == "299"
	}, "all other events are finished, and have left the stream")
	stop()
	require.NoError(t, w.stop())
	require.Equal(t, stream.SeqRange{First: 3, Last: 3}, b.only(t))
	require.Zero(t, lag(t, tr).Groups[0].Lost)
}

// only returns the events of the group's single pending entry.
func (b *bundle) only(t *testing.T) stream.SeqRange {
	t.Helper()
	pending, _, err := b.keys().Group(group).PendingEvents(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Len(t, pending, 1)
	for _, r := range pending {
		return r
	}
	return stream.SeqRange{}
}

// Entries are deleted before any worker reads them: before a parked entry, behind it, and at the end of the stream.
// The trimmer finds the lost events and reports them once, and other entries are still finished.
func TestEventsLostBeforeTheyWereRead(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 3, 1, 4, 5, 1)
	require.NoError(t, b.rdb.XDel(t.Context(), b.keys().Keys.Events(), ids[1], ids[3], ids[5]).Err())
	_, err := b.keys().Group(group).Create(t.Context())
	require.NoError(t, err)
	w := start(t, b.config(t, "w", stubborn(6)))
	tr, logs := b.trimmer(t, group)
	tr.cfg.Retention = time.Hour
	incidents := func() int { return logs.FilterMessageSnippet("INCIDENT").Len() }
	require.NoError(t, tr.Trim(t.Context(), 0))
	testkit.Eventually(t, soon, func() bool {
		return lag(t, tr).Groups[0].Lost == 3+4+1 && b.meta(t, "finished") == "15"
	}, "the trimmer finds the lost events, and the worker finishes all others except the parked one")
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.NoError(t, tr.Trim(t.Context(), 0))
	line := logs.FilterMessageSnippet("INCIDENT").All()[incidents()-1].ContextMap()
	require.Equal(t, "events_lost", line["code"])
	require.EqualValues(t, 8, line["events"])
	before := incidents()
	b.add(t, 0, 100)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 107 }, "work continues")
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, before, incidents(), "the loss is reported once")
	require.NoError(t, w.stop())
}

func TestWhatIsPendingIsNotLost(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(2, 2_500)...)
	b.vanish(t, "busy", 2_400)
	tr, logs := b.trimmer(t, group)
	for range 3 {
		require.NoError(t, tr.Trim(t.Context(), 0))
	}
	require.Zero(t, lag(t, tr).Groups[0].Lost)
	require.Zero(t, logs.FilterMessageSnippet("INCIDENT").Len())
	require.Equal(t, "0", b.meta(t, "finished"))
}

// A close has no grants to deliver. Its done bit is set anyway, so that the close leaves the backlog.
func TestACloseIsFinished(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	grab := b.rain(t, 3, 100)
	require.Equal(t, hongbao.OutcomeGranted, grab())
	_, err := b.keys().Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	w := start(t, b.config(t, "w", newSink(nil)))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "2", b.meta(t, "finished"))
	require.Zero(t, lag(t, tr).Groups[0].Lost)
}
