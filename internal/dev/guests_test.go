package dev

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Guests grab in the user's own campaign at the given rate, with each fact that it counts by, until the user stops them or
// the campaign refuses all.
func TestGuests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		users, answer := map[string]bool{}, hongbao.OutcomeGranted
		g := &guests{
			say: func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, fmt.Sprintf(format, args...))
			},
			spec: func(_ context.Context, id string) (hongbao.Campaign, error) {
				if id != "rain" {
					return hongbao.Campaign{}, errors.New("there is no such campaign")
				}
				return hongbao.Campaign{ID: id, Limits: []hongbao.Limit{{By: "user"}, {By: "device"}}}, nil
			},
			grab: func(_ context.Context, grab *hongbao.Grab) (hongbao.Answer, error) {
				mu.Lock()
				defer mu.Unlock()
				users[grab.User] = true
				require.Equal(t, map[string]string{"device": grab.User}, grab.Facts)
				return hongbao.Answer{Outcome: answer}, nil
			},
		}
		require.False(t, g.press(t.Context(), nil), "nobody grabs")
		require.False(t, g.press(t.Context(), []string{"rain", "1", "2"}))
		require.True(t, g.press(t.Context(), []string{"rain", "0"}))
		require.True(t, g.press(t.Context(), []string{"rian"}))
		require.Equal(t, []string{"g CAMPAIGN RATE: want 1 to 10000 users a second", "g: there is no such campaign"}, said)

		require.True(t, g.press(t.Context(), []string{"rain"}))
		retry.Pause(t.Context(), time.Second+time.Millisecond)
		require.True(t, g.press(t.Context(), nil))
		require.Len(t, users, guestRate+1)
		retry.Pause(t.Context(), time.Second)
		require.Len(t, users, guestRate+1, "they are gone")
		require.Equal(t, "20 users a second grab in campaign rain; g and Enter stops them", said[2])

		answer = hongbao.OutcomeSoldOut
		require.True(t, g.press(t.Context(), []string{"rain", "100"}))
		retry.Pause(t.Context(), time.Second)
		require.Equal(t, "The users in campaign rain stop: the answer is sold_out", said[4])
		g.stop()
	})
}
