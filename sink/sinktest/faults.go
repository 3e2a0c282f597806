package sinktest

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
)

// contextOver: the context is over before the call. The sink writes nothing, and the grants come again.
func contextOver(r *run) {
	h := r.open()
	canceled, cancel := context.WithCancel(r.Context())
	cancel()
	late, end := context.WithDeadline(r.Context(), time.Now().Add(-time.Second))
	defer end()
	for _, ctx := range []context.Context{canceled, late} {
		b := r.batch(0, 10)
		errs := r.wait(r.start(ctx, h, b))
		r.wantRetry(b.Grants, errs, "a context that was over before the call")
		r.wantTruth(b.Grants, errs)
		r.wantNone(b.Grants, "its context was over before the call, so another worker may have the grant: check ctx first")
		r.wantSettled(b.Grants, r.deliver(h, b))
	}
}

// contextEnds: the context ends at a random moment of the call. The results are true, and the grants come again, to the
// same worker or to another one.
func contextEnds(r *run) {
	h := r.open()
	usual := r.usual(h, 10)
	for i := range rounds() {
		b := r.batch(0, 10)
		ctx, cancel := context.WithTimeout(r.Context(), moment(usual))
		errs := r.wait(r.start(ctx, h, b))
		cancel()
		r.wantRetry(b.Grants, errs, "the end of the call's context")
		r.wantTruth(b.Grants, errs)
		if i%2 == 0 {
			h = r.open()
			r.expire()
		}
		r.wantSettled(b.Grants, r.deliver(h, b))
	}
}

// deaths is how many workers die with the same batch.
const deaths = 3

// workersDie: workers die one after the other while they deliver the same batch. Each one begins while the one before
// may still write. The last one lives.
func workersDie(r *run) {
	usual := r.usual(r.open(), 10)
	for range max(1, rounds()/2) {
		b := r.batch(0, 10)
		var calls []*call
		for range deaths {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			calls = append(calls, r.start(ctx, r.open(), b))
			r.pause(moment(usual))
			cancel()
		}
		for _, c := range calls {
			r.wantRetry(b.Grants, r.wait(c), "the death of a worker")
		}
		r.expire()
		r.wantSettled(b.Grants, r.deliver(r.open(), b))
	}
}

// outage: the target is down. No grant loses an attempt, and after the outage each has its effect once.
func outage(r *run) {
	h, b := r.open(), r.batch(0, 10)
	r.wantSettled(b.Grants[:2], r.deliver(h, some(b, b.Grants[:2])))
	left := some(b, b.Grants[2:])
	r.Down(r.TB, true)
	for _, h := range []hongbao.Handler{h, r.open(), h} {
		r.wantOutage(left.Grants, r.handle(h, left))
	}
	r.Down(r.TB, false)
	r.expire()
	r.wantSettled(left.Grants, r.deliver(h, left))
	r.wantSettled(b.Grants, r.deliver(r.open(), b))
}

// wantOutage checks the results of a call while the target is down: at least one is an outage, and the others wait.
func (r *run) wantOutage(grants []hongbao.Grant, errs []error) {
	r.Helper()
	outages, p := 0, report{r: r}
	for i, err := range errs {
		switch kindOf(err) {
		case down:
			outages++
		case waiting:
		case done:
			p.add(&grants[i], "is reported as done while the target is down: return nil only after the target has confirmed "+
				"the effect")
		case final, stops, counted:
			p.add(&grants[i], "fails because the target is down: return hongbao.Outagef, so that it loses no attempt. %s",
				describe(err))
		}
	}
	if outages == 0 && p.count == 0 {
		p.add(&grants[0], "and all others wait, while the target is down: return hongbao.Outagef, so that the shard waits "+
			"and an operator sees why. %s", describe(errs[0]))
	}
	p.end()
}

// settle delivers the batch until each grant is done. What is done comes again, from another worker.
func (r *run) settle(h hongbao.Handler, b hongbao.Batch) {
	r.Helper()
	results := r.deliver(h, b)
	r.wantSettled(b.Grants, results)
	var finished []hongbao.Grant
	for i, err := range results {
		if err == nil {
			finished = append(finished, b.Grants[i])
		}
	}
	r.wantSettled(finished, r.deliver(r.open(), some(b, finished)))
}

// outageInTheMiddle: the target goes down at a random moment of the call.
func outageInTheMiddle(r *run) {
	h := r.open()
	usual := r.usual(h, 10)
	for range max(2, rounds()/3) {
		b := r.batch(0, 10)
		ctx, cancel := r.context()
		c := r.start(ctx, h, b)
		r.pause(moment(usual))
		r.Down(r.TB, true)
		errs := r.wait(c)
		cancel()
		r.wantRetry(b.Grants, errs, "an outage")
		r.wantTruth(b.Grants, errs)
		r.Down(r.TB, false)
		r.expire()
		r.settle(h, b)
	}
}

// lostRequest: each request of a call is lost once, in a batch of its own.
func lostRequest(r *run) { r.lose(false) }

// lostAnswer: each answer to a request of a call is lost once, after the target has done the request.
func lostAnswer(r *run) { r.lose(true) }

// mostSteps limits the requests of one call that are lost.
const mostSteps = 50

func (r *run) lose(answer bool) {
	cause := "a lost request"
	if answer {
		cause = "a lost answer"
	}
	for n := range mostSteps {
		h, b := r.open(), r.batch(0, 5)
		happened := r.Lose(r.TB, n, answer)
		errs := r.handle(h, b)
		lost := happened()
		r.wantRetry(b.Grants, errs, cause)
		r.wantTruth(b.Grants, errs)
		if n%2 == 0 {
			h = r.open()
			r.expire()
		}
		r.settle(h, b)
		if !lost {
			return
		}
	}
}
