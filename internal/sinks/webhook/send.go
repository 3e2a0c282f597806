package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
)

// call is the state of one call of Handle.
type call struct {
	h   *Handler
	ctx context.Context
	// starting ends before ctx, so that each request has its whole time limit before ctx ends.
	starting context.Context
	// halt is why the call sends nothing more; nil if it goes on. It concerns every event.
	halt atomic.Pointer[error]
}

// send sends the events of the items that have no error, and sets their errors.
func (h *Handler) send(ctx context.Context, items []*item) {
	items = slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.err != nil })
	c := &call{h: h, ctx: ctx, starting: ctx}
	if end, ok := ctx.Deadline(); ok {
		starting, cancel := context.WithDeadline(ctx, end.Add(-h.cfg.Timeout))
		defer cancel()
		c.starting = starting
	}
	httpsink.Each(len(items), 1, h.cfg.Concurrency, func(i, _ int) { c.deliver(items[i]) })
	h.judge(items)
}

// deliver sends the event of an item, unless the call or the gate sends nothing.
func (c *call) deliver(it *item) {
	if halt := c.halt.Load(); halt != nil {
		it.err = *halt
		return
	}
	var a answer
	err := c.h.gate.Do(c.starting, func() httpsink.Seen {
		it.began = c.h.failures.begin()
		a = c.h.post(c.ctx, it)
		if wait := min(a.retryAfter, c.h.cfg.MaxRetryAfter); wait > 0 && verdictOf(a.status) == unavailable {
			c.h.gate.Silence(wait)
		}
		return c.seen(&a)
	})
	switch {
	case errors.Is(err, httpsink.ErrLate):
		it.err = hongbao.Waitingf("event %s waits: a request may take %s, and the call ends before that: %w", it.id,
			c.h.cfg.Timeout, err)
	case err != nil:
		it.err = err
	case a.err != nil:
		c.unanswered(it, &a)
	default:
		c.answered(it, a.status)
	}
}

// seen returns what a request has shown about the endpoint. Only an endpoint that fails opens the breaker: one that
// refuses our events is up.
func (c *call) seen(a *answer) httpsink.Seen {
	switch {
	case a.err != nil && (c.ctx.Err() != nil || errors.Is(a.err, errPrivate)):
		return httpsink.Nothing
	case a.err != nil || a.status >= http.StatusInternalServerError:
		return httpsink.Fails
	}
	return httpsink.Works
}

// unanswered concludes from a request without an answer.
func (c *call) unanswered(it *item, a *answer) {
	host := c.h.endpoint.Host
	switch {
	case errors.Is(a.err, errPrivate):
		c.stop(it, broken("connect to %s, nothing was sent: %w", host, a.err))
	case c.ctx.Err() != nil && a.connected:
		it.err = hongbao.Errorf(hongbao.ClassUnknown, "event %s may have reached %s: the call ended before an answer: %w",
			it.id, host, a.err)
	case c.ctx.Err() != nil:
		it.err = hongbao.Waitingf("event %s was not sent: the call ended before there was a connection to %s: %w", it.id,
			host, a.err)
	case a.connected:
		it.failure = fmt.Errorf("%s may have got it, but did not answer: %w", host, a.err)
	default:
		c.stop(it, hongbao.Outagef(hongbao.ClassTransient, "no connection to %s, nothing was sent: %w", host, a.err))
	}
}

// answered concludes from the status of an answer.
func (c *call) answered(it *item, status int) {
	host := c.h.endpoint.Host
	switch verdictOf(status) {
	case accepted:
		c.h.failures.accept(it.id)
	case refused:
		it.err = hongbao.Errorf(hongbao.ClassPermanent, "event %s: %s answered %d, so it never accepts this event", it.id,
			host, status)
	case misdirected:
		c.stop(it, broken("%s answered %d, which concerns every event: correct the URL, the secret or the receiver", host,
			status))
	case unavailable:
		c.stop(it, hongbao.Outagef(hongbao.ClassTransient, "%s answered %d: it takes no event now", host, status))
	case failed:
		it.failure = fmt.Errorf("%s answered %d", host, status)
	case odd:
		it.err = hongbao.Errorf(hongbao.ClassUnknown, "event %s: %s answered %d; it is sent again", it.id, host, status)
	}
}

// broken returns the error for an endpoint that refuses every event, or that must not be called. A person has to
// correct something. On ClassBroken the consumer stops the shard with the alarm shard_broken, gives its entries back
// without an attempt, and tries them again after at most 30 s. So no dead letter is made, and the sink goes on by
// itself when the cause is gone. An outage would also keep the entries, but its alarm says that a server is down.
func broken(format string, args ...any) error {
	return hongbao.Errorf(hongbao.ClassBroken, format, args...)
}

// stop sets the error of an item, and makes it the error of all events that the call has not sent yet.
func (c *call) stop(it *item, err error) {
	it.err = err
	c.halt.CompareAndSwap(nil, &err)
}

// judge sets the errors of items whose tries failed.
func (h *Handler) judge(items []*item) {
	began := map[string]int64{}
	for _, it := range items {
		if it.failure != nil {
			began[it.id] = it.began
		}
	}
	if len(began) == 0 {
		return
	}
	concerns := h.failures.judge(began)
	for _, it := range items {
		if it.failure == nil {
			continue
		}
		switch concerns[it.id] {
		case thisEvent:
			it.err = hongbao.Errorf(hongbao.ClassUnknown, "event %s failed, while other events are accepted: %w", it.id,
				it.failure)
		case allEvents:
			it.err = hongbao.Outagef(hongbao.ClassUnknown, "event %s failed, as others do: %w", it.id, it.failure)
		case unclear:
			it.err = hongbao.Waitingf("event %s failed; as long as no other event was sent, it is unknown whether all do: %w",
				it.id, it.failure)
		}
	}
}
