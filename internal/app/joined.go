package app

import (
	"context"
	"sync"

	"github.com/hongbao-project/hongbao/internal/store"
)

// joined lets concurrent readers of receipts wait together until these are durable. So the readers of a campaign on a
// shard use one connection, even while a replica hangs. Otherwise they would use up the connections to Redis, and grabs
// of other campaigns would wait, too. The zero value can be used.
type joined struct {
	mu   sync.Mutex
	last map[joinKey]*round
}

type joinKey struct {
	shard    *store.Shard
	campaign string
}

// round is one call of Durable for several readers.
type round struct {
	call  store.DurableCall
	begun bool // then no reader can join
	done  chan struct{}
	err   error // set before done is closed
}

// maxJoined limits the readers of a round.
const maxJoined = 1000

// durable is Shard.Durable for one user. It waits for the round in progress, if there is one, and for the next one, which
// has the receipts. One of its readers makes the call.
func (j *joined) durable(ctx context.Context, k *store.Shard, c store.DurableCall) error {
	key := joinKey{k, c.Campaign}
	r, before, first := j.join(key, c)
	if !first {
		select {
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
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
	if j.last[key] == r {
		delete(j.last, key)
	}
	return r.err
}

// join adds a reader to the next round. first reports that the reader has to make the call, after the round before.
func (j *joined) join(key joinKey, c store.DurableCall) (r, before *round, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r = j.last[key]
	if r != nil && !r.begun && len(r.call.Users) < maxJoined {
		r.call.Users, r.call.Receipts = append(r.call.Users, c.Users...), append(r.call.Receipts, c.Receipts...)
		return r, nil, false
	}
	before, r = r, &round{call: c, done: make(chan struct{})}
	if j.last == nil {
		j.last = map[joinKey]*round{}
	}
	j.last[key] = r
	return r, before, true
}
