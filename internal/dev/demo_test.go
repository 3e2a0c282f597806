package dev

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
)

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, all int64
		want   string
	}{{0, 10, "............ 0"}, {5, 10, "######...... 5"}, {10, 10, "############ 10"}, {11, 10, "############ 11"},
		{-1, 10, "............ -1"}, {0, 0, "............ 0"}} {
		require.Equal(t, c.want, bar(c.n, c.all))
	}
}

// A user who grabs twice must get the same receipt both times. The result counts such users.
func TestUserWhoGrabsTwice(t *testing.T) {
	t.Parallel()
	receipt := []hongbao.Receipt{{Packet: 7, Amount: 10}}
	granted := hongbao.Answer{Outcome: hongbao.OutcomeGranted, Receipts: receipt}
	soldOut := hongbao.Answer{Outcome: hongbao.OutcomeSoldOut}
	for name, c := range map[string]struct {
		answers []hongbao.Answer
		same    int
		amounts int
		fails   bool
	}{
		"same":        {[]hongbao.Answer{granted, {Outcome: hongbao.OutcomeAlreadyGranted, Receipts: receipt}}, 1, 1, false},
		"none":        {[]hongbao.Answer{soldOut, soldOut}, 0, 0, false},
		"two packets": {[]hongbao.Answer{granted, granted}, 0, 1, true},
		"another": {[]hongbao.Answer{granted, {Outcome: hongbao.OutcomeAlreadyGranted,
			Receipts: []hongbao.Receipt{{Packet: 8, Amount: 10}}}}, 0, 1, true},
		"refused": {[]hongbao.Answer{granted, soldOut}, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			users := crowd.New(func(context.Context, *hongbao.Grab) (hongbao.Answer, error) {
				asked++
				return c.answers[asked-1], nil
			}, t.Logf)
			d := &Demo{}
			err := d.user(t.Context(), users, hongbao.Grab{Campaign: "demo", User: "ann"}, true)
			require.Equal(t, c.fails, err != nil, err)
			require.Equal(t, 2, asked)
			require.Equal(t, 1, d.result.again)
			require.Equal(t, c.same, d.result.same)
			require.Len(t, d.result.amounts, c.amounts)
		})
	}
}

// A signal during the demo is reported as an error; a signal after the demo is not.
func TestDemoIsStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	broken := errors.New("broken")
	require.NoError(t, (&Demo{}).stopped(ctx, nil))
	require.ErrorIs(t, (&Demo{}).stopped(ctx, broken), broken)
	signal := errors.New("a signal")
	stop(signal)
	require.ErrorIs(t, (&Demo{}).stopped(ctx, nil), signal)
	require.ErrorIs(t, (&Demo{}).stopped(ctx, context.Canceled), signal)
	require.ErrorIs(t, (&Demo{}).stopped(ctx, broken), broken)
	require.NoError(t, (&Demo{over: true}).stopped(ctx, nil))
}
