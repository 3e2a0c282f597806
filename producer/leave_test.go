package producer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func oneLane(undecided time.Duration) *lane {
	closed, cancel := context.WithCancel(context.Background())
	cancel() // nothing watches the queue
	return &lane{campaign: &campaign{p: &Producer{cfg: Config{UndecidedTimeout: undecided}, ctx: closed}}}
}

// A caller leaves at the moment when it is answered busy. The lane must not count it as a waiting caller that has
// left. Otherwise the count would be wrong, and the lane might start no call for the last waiting caller.
func TestLeaveAtTheMomentOfTheAnswer(t *testing.T) {
	t.Parallel()
	l := oneLane(time.Millisecond)
	w := &waiter{lane: l, sent: true, expires: time.Now().Add(time.Hour), done: make(chan struct{}, 1), answer: hongbao.Answer{Outcome: hongbao.OutcomeBusy}}
	require.True(t, l.waitAgain([]*waiter{w}, time.Second), "no one else waits")
	require.Empty(t, l.waiting)
	require.Len(t, w.done, 1, "its time is up")
	require.True(t, l.leave(w), "the waiter has its answer")
	require.Zero(t, l.left)
}

// A caller that has left reads its answer without a lock, so waitAgain must not write into it.
func TestFrozenAnswersNoOneWhoLeft(t *testing.T) {
	t.Parallel()
	l := oneLane(time.Minute)
	wait := func() *waiter {
		return &waiter{lane: l, expires: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
	}
	left, stays := wait(), wait()
	l.waiting = []*waiter{left, stays, wait()}
	require.False(t, l.leave(left))
	inCall := wait()
	inCall.sent, inCall.answer = true, hongbao.Answer{Outcome: hongbao.OutcomeFrozen}
	require.True(t, l.waitAgain([]*waiter{inCall}, time.Second))
	require.Empty(t, left.answer.Outcome)
	require.Equal(t, hongbao.OutcomeFrozen, stays.answer.Outcome)
}
