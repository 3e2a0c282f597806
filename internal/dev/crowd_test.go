package dev

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
)

// rained simulates two grabs a second for a minute. In the first campaign the outcome is first from the eleventh
// grab on. Other campaigns always have packets left. It returns the campaigns in their order, and the users who
// grabbed in the first one.
func rained(t *testing.T, first hongbao.Outcome) (campaigns, users []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex
		grab := func(_ context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
			mu.Lock()
			defer mu.Unlock()
			if g.Campaign != "crowd-1" {
				return hongbao.Answer{Outcome: hongbao.OutcomeGranted}, nil
			}
			if users = append(users, g.User); len(users) > 10 {
				return hongbao.Answer{Outcome: first}, nil
			}
			return hongbao.Answer{Outcome: hongbao.OutcomeGranted}, nil
		}
		err := rain(ctx, crowd.New(grab, t.Logf), 2, func() (string, error) {
			campaigns = append(campaigns, fmt.Sprintf("crowd-%d", len(campaigns)+1))
			return campaigns[len(campaigns)-1], nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	return campaigns, users
}

// If a campaign is sold out or over, rain continues with the next campaign. It stays in a paused campaign,
// whose users are refused.
func TestRainGoesOn(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[hongbao.Outcome]int{
		hongbao.OutcomeSoldOut: 2, hongbao.OutcomeEnded: 2, hongbao.OutcomeUnknownCampaign: 2,
		hongbao.OutcomePaused: 1, hongbao.OutcomeGranted: 1,
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			campaigns, users := rained(t, outcome)
			require.Len(t, campaigns, want)
			require.Equal(t, []string{"guest-0", "guest-0", "guest-2", "guest-3", "guest-4", "guest-5", "guest-5"}, users[:7],
				"every fifth comes twice")
			if want == 1 {
				require.InDelta(t, 120, len(users), 1)
			} else {
				require.Len(t, users, 11)
			}
		})
	}
}

// If the next campaign can't be opened, rain retries. It ends at a permanent error.
func TestRainEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var granted atomic.Int64
		refused := hongbao.Errorf(hongbao.ClassPermanent, "no such fact")
		c := crowd.New(func(context.Context, *hongbao.Grab) (hongbao.Answer, error) {
			if granted.Add(1) > 3 {
				return hongbao.Answer{}, refused
			}
			return hongbao.Answer{Outcome: hongbao.OutcomeGranted}, nil
		}, t.Logf)
		tries := 0
		require.ErrorIs(t, rain(t.Context(), c, 1, func() (string, error) {
			if tries++; tries < 5 {
				return "", hongbao.Waitingf("the ledger is busy")
			}
			return "crowd", nil
		}), refused)
		require.Equal(t, 5, tries)
		broken := errors.New("no such table")
		require.ErrorIs(t, rain(t.Context(), c, 1, func() (string, error) {
			return "", hongbao.Errorf(hongbao.ClassPermanent, "%w", broken)
		}), broken)
	})
}
