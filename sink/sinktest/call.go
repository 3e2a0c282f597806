package sinktest

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// call is one call of Handle.
type call struct {
	ctx      context.Context
	batch    hongbao.Batch
	before   []hongbao.Grant // the batch's grants before the call
	ended    chan struct{}   // closed after Handle has returned; the fields below are then set
	errs     []error
	panicked string
	took     time.Duration
}

// start begins a call of Handle. Each call needs a wait.
func (r *run) start(ctx context.Context, h hongbao.Handler, b hongbao.Batch) *call {
	c := &call{ctx: ctx, batch: b, before: slices.Clone(b.Grants), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer func() {
			if p := recover(); p != nil {
				c.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		began := time.Now()
		c.errs = h.Handle(ctx, b)
		c.took = time.Since(began)
	}()
	return c
}

// wait waits until Handle has returned, and checks what holds for every call. It returns one result for each grant.
func (r *run) wait(c *call) []error {
	r.Helper()
	select {
	case <-c.ended:
	case <-c.ctx.Done():
		select {
		case <-c.ended:
		case <-time.After(r.grace):
			r.Fatalf("case %q: Handle has not returned %s after the end of its context: pass ctx to every wait, and return "+
				"soon after its end", r.name, r.grace)
		}
	}
	if c.panicked != "" {
		r.Fatalf("case %q: Handle panicked: return an error instead. %s", r.name, c.panicked)
	}
	n := len(c.before)
	if c.errs != nil && len(c.errs) != n {
		r.Fatalf("case %q: Handle returned %d errors for %d grants: return nil, or one result for each grant", r.name,
			len(c.errs), n)
	}
	for i := range c.before {
		if c.before[i] != c.batch.Grants[i] {
			r.Fatalf("case %q: Handle changed %s of its batch: work on a copy, since the caller delivers the grants again",
				r.name, label(&c.before[i]))
		}
	}
	if c.errs == nil {
		return make([]error, n)
	}
	return c.errs
}

// handle calls Handle once.
func (r *run) handle(h hongbao.Handler, b hongbao.Batch) []error {
	r.Helper()
	ctx, cancel := r.context()
	defer cancel()
	return r.wait(r.start(ctx, h, b))
}

// usual returns how long a call with n new grants takes.
func (r *run) usual(h hongbao.Handler, n int) time.Duration {
	r.Helper()
	r.deliver(h, r.batch(0, n)) // the first call of a process may open connections
	ctx, cancel := r.context()
	defer cancel()
	least := r.Patience
	for range 3 { // the machine may be busy during one of them
		c := r.start(ctx, h, r.batch(0, n))
		r.wait(c)
		least = min(least, c.took)
	}
	return least
}

// kind is what a consumer does with a result.
type kind string

const (
	done    kind = "done"
	final   kind = "final"   // Permanent or Conflict: a dead letter
	stops   kind = "broken"  // Broken: the shard stops
	down    kind = "outage"  // Outage: the shard waits
	waiting kind = "waiting" // Waiting: the grant waits
	counted kind = "counted" // another error: a retry that uses up an attempt
)

func kindOf(err error) kind {
	class := hongbao.ClassOf(err)
	switch {
	case err == nil:
		return done
	case class == hongbao.ClassBroken:
		return stops
	case hongbao.IsOutage(err):
		return down
	case hongbao.IsWaiting(err):
		return waiting
	case class == hongbao.ClassPermanent, class == hongbao.ClassConflict:
		return final
	}
	return counted
}

// attempts is after how many attempts a consumer makes a dead letter, by default.
const attempts = 12

// deliver does what a consumer does: it delivers the grants until each one is done or would be a dead letter. A batch
// that fails as a whole is halved, so that one grant can't hold up the others. It returns one result for each grant.
func (r *run) deliver(h hongbao.Handler, b hongbao.Batch) []error {
	r.Helper()
	results := make([]error, len(b.Grants))
	left := make([]int, len(b.Grants))
	for i := range left {
		left[i] = i
	}
	used := make([]int, len(b.Grants))
	end := time.Now().Add(r.Patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left = slices.DeleteFunc(r.try(h, b, left, results), func(i int) bool {
			if kindOf(results[i]) == counted {
				used[i]++
			}
			return used[i] == attempts
		})
		if len(left) == 0 {
			return results
		}
		if time.Now().After(end) {
			r.giveUp(&b.Grants[left[0]], results[left[0]], len(left)-1)
		}
		r.pause(pause)
	}
}

// giveUp ends the case because a grant still fails, and with it a number of others.
func (r *run) giveUp(g *hongbao.Grant, err error, others int) {
	r.Helper()
	advice := "A grant that the target refuses for good needs class Permanent or Conflict, without Outage"
	if kindOf(err) == waiting {
		advice = "The claim of a dead worker must end by itself within Subject.Patience, or by Subject.Expire"
	}
	r.Fatalf("case %q: %s and %d more still fail after %s, although the target works: %s. %s", r.name, label(g), others,
		r.Patience, describe(err), advice)
}

// try delivers the grants at these indexes once, and sets their results. It returns the indexes of grants that come
// again.
func (r *run) try(h hongbao.Handler, b hongbao.Batch, indexes []int, results []error) (again []int) {
	r.Helper()
	part := make([]hongbao.Grant, len(indexes))
	for i, index := range indexes {
		part[i] = b.Grants[index]
	}
	errs := r.handle(h, some(b, part))
	countedErrs := 0
	for i, index := range indexes {
		results[index] = errs[i]
		switch kindOf(errs[i]) {
		case done, final:
			continue
		case stops:
			r.Fatalf("case %q: %s stops the shard: %v. Use class Broken only if going on would do harm", r.name,
				label(&b.Grants[index]), describe(errs[i]))
		case counted:
			countedErrs++
		case down, waiting:
		}
		again = append(again, index)
	}
	if n := len(indexes); n > 1 && countedErrs == n {
		first := r.try(h, b, indexes[:n/2], results)
		return append(first, r.try(h, b, indexes[n/2:], results)...)
	}
	return again
}

// pause waits between two tries.
func (r *run) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

// label names a grant in a message.
func label(g *hongbao.Grant) string {
	return fmt.Sprintf("grant %s (campaign %s, packet %d, user %s)", g.EventID(), g.Campaign, g.Packet, g.User)
}

// describe returns an error with what a consumer sees of it.
func describe(err error) string {
	if err == nil {
		return "nil"
	}
	text := "class " + hongbao.ClassOf(err).String()
	if hongbao.IsOutage(err) {
		text += ", Outage"
	}
	if hongbao.IsWaiting(err) {
		text += ", Waiting"
	}
	return text + ": " + err.Error()
}
