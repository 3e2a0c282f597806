package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestEntriesTellWhoAndHow(t *testing.T) {
	t.Parallel()
	e := NewEntry(t.Context(), PauseSink)
	require.Regexp(t, `^cli:.+@.+$`, e.Who)
	require.WithinDuration(t, time.Now(), e.Time, time.Minute)
	who := Caller{Key: "abc"}
	e = NewEntry(As(t.Context(), who.Actor("r7")), PauseSink)
	require.Equal(t, []string{"key:abc", "r7"}, []string{e.Who, e.RequestID})
	require.NotEqual(t, e.ID, NewEntry(t.Context(), PauseSink).ID)

	for want, err := range map[Outcome]error{
		OutcomeDone:    nil,
		OutcomeRefused: hongbao.Errorf(hongbao.ClassPermanent, "no"),
		OutcomeFailed:  hongbao.Outagef(hongbao.ClassTransient, "away"),
		OutcomeUnknown: hongbao.Outagef(hongbao.ClassUnknown, "lost"),
	} {
		e := Entry{}
		e.End(err)
		require.Equal(t, want, e.Outcome)
		require.Equal(t, err != nil, e.Details["error"] != nil)
	}
	e = Entry{}
	e.End(context.Canceled)
	require.Equal(t, OutcomeUnknown, e.Outcome)
	e.End(errors.New(strings.Repeat("é", maxError)))
	require.Equal(t, OutcomeFailed, e.Outcome)
	require.LessOrEqual(t, len(e.Details["error"].(string)), maxError)
}

// A caller that is refused again and again cannot fill the journal. The next recorded refusal says how many were
// skipped.
func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d Denials
		written := 0
		for range 1000 {
			if write, skipped := d.Take("key:a", MostDenials); write {
				require.Zero(t, skipped)
				written++
			}
		}
		require.Equal(t, MostDenials, written)
		write, _ := d.Take("key:b", MostDenials)
		require.True(t, write, "each caller has a limit of its own")
		wait(t, denialsEach)
		write, skipped := d.Take("key:a", MostDenials)
		require.True(t, write)
		require.Equal(t, 1000-MostDenials, skipped)
		write, skipped = d.Take("key:a", MostDenials)
		require.True(t, write)
		require.Zero(t, skipped)
	})
}

// A page that refreshes itself gets one entry in ten minutes. A program that reads the data of all users can't fill the
// journal; the next entry says how many reads were skipped.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Reads
		take := func(who, data string, want bool, wantSkipped int) {
			t.Helper()
			write, skipped := r.Take(who, data)
			require.Equal(t, want, write)
			require.Equal(t, wantSkipped, skipped)
		}
		take("key:a", "u", true, 0)
		for range 1000 {
			take("key:a", "u", false, 0)
		}
		take("key:b", "u", true, 0)
		for i := range 1000 {
			take("key:a", fmt.Sprint(i), i < MostReads-1, 0)
		}
		wait(t, denialsEach)
		take("key:a", "u", false, 0)
		take("key:a", "999", true, 1000-MostReads+1)
		wait(t, ReadsEach-denialsEach)
		take("key:a", "u", true, 0)
		for i := range 2 * denialsKnown {
			take(fmt.Sprint("key:", i), "u", true, 0)
		}
		require.LessOrEqual(t, len(r.last), denialsKnown)
	})
}
