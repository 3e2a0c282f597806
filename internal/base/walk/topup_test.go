package walk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
)

// topUp is a top-up of the campaign: its generation, the range of its packets, and the packets that each place had
// before.
type topUp struct {
	*world
	generation, first, last int64
	packets                 int64 // total of the campaign, including the new packets
	loaded                  []int64
	pause                   func() bool
}

// topUp adds a task that announces a generation on every place, waits longer than a lease, and deals the packets.
func (w *world) topUp() {
	n := int64(1 + w.rng.IntN(5))
	w.generation++
	u := &topUp{world: w, generation: w.generation, first: w.c.Packets + 1, last: w.c.Packets + n,
		packets: w.c.Packets + n}
	w.c.Packets += n
	for _, k := range w.places {
		loaded, _ := w.rdb.HGet(context.Background(), k.Keys.Campaign(w.c.ID), "loaded").Int64()
		u.loaded = append(u.loaded, loaded)
	}
	order := w.rng.Perm(len(w.places))
	w.start(nil, func(ctx context.Context, pause func() bool) func() error {
		u.pause = pause
		u.run(ctx, order)
		return nil
	})
}

func (u *topUp) run(ctx context.Context, order []int) {
	if u.bug == "packets before the announcement" {
		for _, j := range order {
			if !u.pause() {
				return
			}
			u.smuggle(j)
		}
		return
	}
	for _, j := range order {
		if !u.announce(ctx, j) {
			return
		}
	}
	for since := u.now; u.now.Sub(since) <= walk.Lease; {
		if !u.pause() {
			return
		}
	}
	for _, j := range slices.Backward(order) {
		if !u.deal(ctx, j) {
			return
		}
	}
}

// insist repeats a call until it succeeds. It returns false if the task was stopped, or if the campaign refuses the
// call.
func insist(call func() error) bool {
	for {
		err := call()
		if err == nil {
			return true
		}
		if errors.Is(err, errStopped) || hongbao.ClassOf(err) == hongbao.ClassPermanent {
			return false
		}
	}
}

// share returns the numbers of the packets that place j gets.
func (u *topUp) share(j int) (numbers []int64) {
	for k := u.first + int64(j); k <= u.last; k += int64(len(u.places)) {
		numbers = append(numbers, k)
	}
	return numbers
}

func (u *topUp) announce(ctx context.Context, j int) bool {
	have := u.loaded[j] + int64(len(u.share(j)))
	return insist(func() error {
		return u.places[j].Announce(ctx, &store.Announcement{
			Campaign: u.c.ID, Hash: u.hash, Generation: u.generation, Plan: fmt.Sprint("h", u.generation), Packets: u.packets,
			Total: hongbao.Amount(10 * u.packets), Share: have, ShareAmount: hongbao.Amount(10 * have),
		})
	})
}

func (u *topUp) deal(ctx context.Context, j int) bool {
	if u.bug == "an empty place filled" {
		if !u.pause() {
			return false
		}
		u.refill(j)
		return true
	}
	chunk := &store.Chunk{
		Campaign: u.c.ID, Hash: u.hash, Generation: u.generation, Before: u.loaded[j], First: u.first + int64(j),
		Step: int64(len(u.places)), Amounts: slices.Repeat([]hongbao.Amount{10}, len(u.share(j))),
	}
	return insist(func() error {
		_, err := u.places[j].LoadChunk(ctx, chunk)
		return err
	})
}

// smuggle is a planted bug: it deals packets without an announcement.
func (u *topUp) smuggle(j int) {
	ctx, k := context.Background(), u.places[j]
	for _, n := range u.share(j) {
		u.rdb.RPush(ctx, k.Keys.StockOf(u.c.ID, u.generation), fmt.Sprintf("%d 10", n))
	}
	u.rdb.HIncrBy(ctx, k.Keys.Campaign(u.c.ID), "loaded", int64(len(u.share(j))))
	u.changed = true
}

// refill is a planted bug: it puts the new packets into generation 1, which may already be empty.
func (u *topUp) refill(j int) {
	ctx, k := context.Background(), u.places[j]
	for _, n := range u.share(j) {
		u.rdb.RPush(ctx, k.Keys.Stock(u.c.ID), fmt.Sprintf("%d 10", n))
	}
	u.rdb.HSet(ctx, k.Keys.Campaign(u.c.ID), "dealt", u.generation)
	u.changed = true
}
