package sinktest

import (
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// oneBatch: each grant of a batch has its effect once, at the first call.
func oneBatch(r *run) {
	h, b := r.open(), r.batch(0, 20)
	r.wantDone(b.Grants, r.handle(h, b), "the target works")
	r.wantOnce(b.Grants)
	one := r.batch(0, 1)
	r.wantDone(one.Grants, r.handle(h, one), "the target works")
	r.wantOnce(append(one.Grants, b.Grants...))
}

// emptyBatch: a batch without grants is done.
func emptyBatch(r *run) {
	h := r.open()
	for _, none := range [][]hongbao.Grant{nil, {}} {
		r.handle(h, hongbao.Batch{Epoch: 1, Grants: none})
	}
	b := r.batch(0, 1)
	r.wantSettled(b.Grants, r.deliver(h, b))
}

// sameBatchAgain: a batch that comes again, in any order and from any worker, changes nothing and is done.
func sameBatchAgain(r *run) {
	h, b := r.open(), r.batch(0, 20)
	r.wantSettled(b.Grants, r.deliver(h, b))
	reversed := some(b, slices.Clone(b.Grants))
	slices.Reverse(reversed.Grants)
	for _, again := range []struct {
		h     hongbao.Handler
		batch hongbao.Batch
	}{{h, b}, {r.open(), b}, {h, reversed}, {r.open(), some(b, b.Grants[7:8])}} {
		r.wantDone(again.batch.Grants, r.handle(again.h, again.batch), "it was done before, and a repeat is done at once")
		r.wantOnce(b.Grants)
	}
}

// overlappingBatches: a batch has grants that are done, and others that are not.
func overlappingBatches(r *run) {
	h, b := r.open(), r.batch(0, 30)
	for _, part := range [][]hongbao.Grant{b.Grants[5:15], b.Grants[10:20], b.Grants} {
		r.wantSettled(part, r.deliver(h, some(b, part)))
	}
	r.wantSettled(b.Grants, r.deliver(r.open(), b))
}

// twiceInOneBatch: the same grant is twice in one batch. Both get the same result.
func twiceInOneBatch(r *run) {
	h, b := r.open(), r.batch(0, 5)
	double := some(b, append(slices.Clone(b.Grants), b.Grants...))
	r.wantSettled(double.Grants, r.deliver(h, double))
	r.wantSettled(double.Grants, r.deliver(r.open(), double))
}

// twoWorkers: two workers deliver the same grants at the same time, as after a lost lease.
func twoWorkers(r *run) {
	one, two := r.open(), r.open()
	for range rounds() {
		b := r.batch(0, 10)
		r.atOnce(request{one, b}, request{two, b})
		r.wantSettled(b.Grants, r.deliver(two, b))
		r.wantSettled(b.Grants, r.deliver(one, b))
	}
}

// twoShards: the batches of two shards are delivered at the same time, by one worker and by two.
func twoShards(r *run) {
	one, two := r.open(), r.open()
	for range rounds() {
		zero, first := r.batch(0, 10), r.batch(1, 10)
		r.atOnce(request{one, zero}, request{one, first}, request{two, first})
		for _, b := range []hongbao.Batch{zero, first} {
			r.wantSettled(b.Grants, r.deliver(two, b))
		}
		r.wantOnce(slices.Concat(zero.Grants, first.Grants))
	}
}

// request is a batch for a handler.
type request struct {
	h hongbao.Handler
	b hongbao.Batch
}

// atOnce makes the calls at the same time, and checks that each says the truth.
func (r *run) atOnce(requests ...request) {
	r.Helper()
	ctx, cancel := r.context()
	defer cancel()
	var calls []*call
	for _, q := range requests {
		calls = append(calls, r.start(ctx, q.h, q.b))
	}
	for _, c := range calls {
		errs := r.wait(c)
		r.wantRetry(c.before, errs, "another call with the same grants or of another shard")
		r.wantTruth(c.before, errs)
	}
}

// earlierEpoch: a worker that still has an earlier epoch of the shard delivers after one that has a later epoch. The
// sink may refuse the former in any way, but it must not repeat an effect or lose a grant of the latter.
func earlierEpoch(r *run) {
	late, early := r.open(), r.open()
	b, more := r.batch(0, 10), r.batch(0, 10)
	later := hongbao.Batch{Epoch: 2, Grants: b.Grants}
	r.wantSettled(b.Grants, r.deliver(late, later))
	for _, earlier := range []hongbao.Batch{b, more} {
		r.wantTruth(earlier.Grants, r.handle(early, earlier))
	}
	r.wantOnce(b.Grants)
	all := hongbao.Batch{Epoch: 3, Grants: slices.Concat(b.Grants, more.Grants)}
	r.wantSettled(all.Grants, r.deliver(r.open(), all))
}

// another returns another grant of a packet: a new event, for another user.
func (r *run) another(g *hongbao.Grant) hongbao.Grant {
	r.Helper()
	other := r.batch(g.Shard, 1).Grants[0]
	other.Campaign, other.Packet, other.Amount = g.Campaign, g.Packet, g.Amount
	other.User = g.User + "-other"
	return other
}

// twoGrantsOfOnePacket: a packet comes again, for another user. Redis has lost data, or a record is forged. At most one
// of the two users gets the packet, and a person learns about the other one.
func twoGrantsOfOnePacket(r *run) {
	h, b := r.open(), r.batch(0, 5)
	r.wantSettled(b.Grants, r.deliver(h, b))
	other := r.another(&b.Grants[2])
	for _, h := range []hongbao.Handler{h, r.open()} {
		err := r.deliver(h, some(b, []hongbao.Grant{other}))[0]
		if r.ByEvent {
			r.wantSettled([]hongbao.Grant{other}, []error{err})
		} else {
			r.wantRefused(&other, err)
		}
		r.wantOnce(b.Grants)
	}
}

// twoGrantsInOneBatch: the same in one batch, among others.
func twoGrantsInOneBatch(r *run) {
	b := r.batch(0, 5)
	pair := []hongbao.Grant{b.Grants[0], r.another(&b.Grants[0])}
	both := some(b, append(slices.Clone(pair), b.Grants[1:]...))
	for range 2 {
		errs := r.deliver(r.open(), both)
		if r.ByEvent {
			r.wantSettled(both.Grants, errs)
			continue
		}
		r.wantSettled(both.Grants[2:], errs[2:])
		counts := r.effects(pair)
		if counts[0]+counts[1] > 1 {
			r.Fatalf("case %q: %s and %s had %d and %d effects, want at most one for the packet: take campaign and packet for "+
				"the id, and compare the user", r.name, label(&pair[0]), label(&pair[1]), counts[0], counts[1])
		}
		for i := range pair {
			if counts[i] == 0 {
				r.wantRefused(&pair[i], errs[i])
			} else {
				r.wantDone(pair[i:i+1], errs[i:i+1], "it has its effect")
			}
		}
	}
}

// refusedGrant: the target refuses one grant of a batch, at any place of the batch. Only this grant fails.
func refusedGrant(r *run) {
	const n = 9
	h := r.open()
	for _, at := range []int{0, n / 2, n - 1} {
		b := r.batch(0, n)
		b.Grants[at] = r.Poison(r.TB, b.Grants[at])
		for _, h := range []hongbao.Handler{h, r.open()} {
			r.wantRefusedAt(at, b, r.deliver(h, b))
		}
	}
}

func (r *run) wantRefusedAt(at int, b hongbao.Batch, errs []error) {
	r.Helper()
	good, results := slices.Concat(b.Grants[:at], b.Grants[at+1:]), slices.Concat(errs[:at], errs[at+1:])
	r.wantDone(good, results, fmt.Sprintf("the target accepts it, and refuses only number %d of the batch", at))
	r.wantOnce(good)
	r.wantRefused(&b.Grants[at], errs[at])
}

// refusedGrantAlone: the refused grant comes alone, among calls with good grants.
func refusedGrantAlone(r *run) {
	h, b := r.open(), r.batch(0, 3)
	r.wantSettled(b.Grants[:1], r.deliver(h, some(b, b.Grants[:1])))
	bad := r.Poison(r.TB, b.Grants[1])
	for range 2 {
		r.wantRefused(&bad, r.deliver(h, some(b, []hongbao.Grant{bad}))[0])
	}
	r.wantSettled(b.Grants[2:], r.deliver(h, some(b, b.Grants[2:])))
}
