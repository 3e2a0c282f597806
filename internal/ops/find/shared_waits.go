package find

import (
	"context"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// sharedWaits makes one call of Durable for all users who read their receipts of a campaign on a shard at the same
// time. A slow replica then uses one connection to Redis, not one for each user, so that grabs of other campaigns do
// not wait. The zero value can be used.
type sharedWaits struct {
	mu   sync.Mutex
	last map[store.Place]*wait
}

// wait is one call of Durable for several readers.
type wait struct {
	call  store.DurableCall
	begun bool // then no reader can join
	done  chan struct{}
	err   error // final when done is closed
}

// errNoResult is the error of a round whose call of Durable has not returned, for example because it panicked.
var errNoResult = hongbao.Outagef(hongbao.ClassUnknown, "%w: the call of Durable has not returned", store.ErrNotDurable)

// maxJoined limits the readers of a round.
const maxJoined = 1000

// durable waits until a user's receipts are durable. Readers that arrive while a call of Durable runs share the next
// call. One of them makes it, after the running call has ended. So a reader waits for two calls at most, which may be
// two timeouts, unless more than maxJoined wait.
func (j *sharedWaits) durable(ctx context.Context, k store.Place, c store.DurableCall) error {
	r, before, first := j.join(k, c)
	if !first {
		select {
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return hongbao.Outagef(hongbao.ClassUnknown, "%w: the reader waited for a call that other readers share: %w",
				store.ErrNotDurable, ctx.Err())
		}
	}
	defer close(r.done)
	if before != nil {
		<-before.done
	}
	j.mu.Lock()
	r.begun = true
	j.mu.Unlock()
	r.err = k.Durable(context.WithoutCancel(ctx), &r.call)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last[k] == r {
		delete(j.last, k)
	}
	return r.err
}

// join adds a reader to the next round. first reports that the reader has to make the call, after the round before.
func (j *sharedWaits) join(k store.Place, c store.DurableCall) (r, before *wait, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r = j.last[k]
	if r != nil && !r.begun && len(r.call.Users) < maxJoined {
		r.call.Users, r.call.Receipts = append(r.call.Users, c.Users...), append(r.call.Receipts, c.Receipts...)
		return r, nil, false
	}
	before, r = r, &wait{call: c, done: make(chan struct{}), err: errNoResult}
	if j.last == nil {
		j.last = map[store.Place]*wait{}
	}
	j.last[k] = r
	return r, before, true
}
