package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func oneLane(undecided time.Duration) *lane {
	return &lane{campaign: &campaign{p: &Producer{cfg: Config{UndecidedTimeout: undecided}}}}
}

// A caller who leaves at the very moment that they get "busy" does not count as a waiting caller. Otherwise the lane
// would count too few waiting callers, and start no call for the last of them.
func TestLeaveAtTheMomentOfTheAnswer(t *testing.T) {
	t.Parallel()
	l := oneLane(time.Millisecond)
	w := &waiter{lane: l, sent: true, done: make(chan struct{}, 1), answer: hongbao.Answer{Outcome: hongbao.OutcomeBusy}}
	require.True(t, l.waitAgain([]*waiter{w}, time.Second), "no one else waits")
	require.Empty(t, l.waiting)
	require.Len(t, w.done, 1, "its time is up")
	require.True(t, l.leave(w), "the waiter has its answer")
	require.Zero(t, l.left)
}

// A caller who has left reads their answer without the lane's lock, so a frozen shard's answer is not written into
// it.
func TestFrozenAnswersNoOneWhoLeft(t *testing.T) {
	t.Parallel()
	l := oneLane(time.Minute)
	wait := func() *waiter { return &waiter{lane: l, done: make(chan struct{}, 1)} }
	left, stays := wait(), wait()
	l.waiting = []*waiter{left, stays, wait()}
	require.False(t, l.leave(left))
	inCall := wait()
	inCall.sent, inCall.answer = true, hongbao.Answer{Outcome: hongbao.OutcomeFrozen}
	require.True(t, l.waitAgain([]*waiter{inCall}, time.Second))
	require.Empty(t, left.answer.Outcome)
	require.Equal(t, hongbao.OutcomeFrozen, stays.answer.Outcome)
}
