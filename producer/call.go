package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
)

// call is a call of a lane to Redis. The lane reuses its buffers.
type call struct {
	lane      *lane
	info      *info // the settings of the campaign for this call
	ask       walk.Ask
	began     time.Time // when the first try began
	asked     time.Time // when the last try began
	batch     []*waiter
	elsewhere [][]time.Time
	req       store.GrabCall
	answers   []hongbao.Answer
	results   []result
	traces    []string
	err       error // the error of the whole call
	doubt     error // the first error after which the call may have been carried out
}

type result struct {
	answer hongbao.Answer
	err    error
	step   walk.NextStep
}

func (l *lane) newCall() *call {
	c := &call{lane: l}
	c.req.MaxBacklog = l.p.cfg.MaxBacklog
	return c
}

// begin resets the call for its next batch of grabs.
func (c *call) begin() {
	c.info = c.lane.info()
	c.batch, c.req.Grabs = c.batch[:0], c.req.Grabs[:0]
	c.req.FactNames, c.req.Currency = c.info.FactNames, c.info.Currency
	c.req.Terms = c.lane.terms.Load()
	c.elsewhere, c.req.TimesElsewhere = c.elsewhere[:0], nil
}

// takes reports whether a grab with this ask can join the batch. The first grab of a batch sets the ask.
func (c *call) takes(ask walk.Ask) bool {
	if ask.Receipts {
		ask.Generation = 0
	}
	if len(c.batch) == 0 {
		c.ask, c.req.Generation = ask, ask.Generation
	}
	return c.ask == ask
}

func (c *call) add(w *waiter) {
	c.batch, c.req.Grabs = append(c.batch, w), append(c.req.Grabs, &w.grab)
	elsewhere := w.walk.PassedReceipts()
	if c.elsewhere = append(c.elsewhere, elsewhere); len(elsewhere) > 0 || c.req.TimesElsewhere != nil {
		c.req.TimesElsewhere = c.elsewhere
	}
}

// send makes the call, with retries, and stores the result of each grab.
func (c *call) send() {
	ctx, cancel := context.WithTimeout(c.lane.p.ctx, c.lane.p.cfg.CallTimeout)
	defer cancel()
	c.results = append(c.results[:0], make([]result, len(c.batch))...)
	c.began = time.Now()
	c.err = c.repeat(ctx)
	if called := c.lane.p.cfg.Called; called != nil {
		called(Call{Campaign: c.lane.id, Grabs: len(c.batch), Traces: c.traceparents(), Took: time.Since(c.began), Err: c.failed()})
	}
	if c.err == nil && c.lane.vanished(c.answers) {
		c.lane.dropMissing()
	}
	for i := range c.results {
		r := &c.results[i]
		switch {
		case c.err != nil:
			r.err = c.err
		case r.err == nil:
			r.answer = c.answers[i]
		}
		if r.err != nil {
			r.err = fmt.Errorf("grab in campaign %s (repeat it with the same request id): %w", c.lane.id, r.err)
		}
	}
}

// failed returns the error of the call, or of its first grab if no grab was answered.
func (c *call) failed() error {
	for i := range c.results {
		if c.results[i].err == nil {
			return c.err
		}
	}
	return cmp.Or(c.err, c.results[0].err)
}

// traceparents returns the traceparents of the batch. Some grabs may have none.
func (c *call) traceparents() []string {
	c.traces = c.traces[:0]
	for _, w := range c.batch {
		if w.grab.Trace != "" {
			c.traces = append(c.traces, w.grab.Trace)
		}
	}
	return c.traces
}

// repeat tries until the answers are known or ctx ends. Every grab has a request id, so retrying a call that Redis has
// carried out returns the same receipts. It decides refusals again.
func (c *call) repeat(ctx context.Context) error {
	c.doubt = nil
	last := whileDown(ctx, func() error {
		last := c.try(ctx)
		var facts *store.FactsError
		if errors.As(last, &facts) { // the facts were checked for an earlier campaign with this id
			_, err := c.lane.readCampaign(ctx)
			last = errors.Join(hongbao.Errorf(hongbao.ClassTransient, "the campaign was replaced; nothing happened: %w", facts),
				err)
		}
		if last != nil && c.doubt == nil && hongbao.ClassOf(last) == hongbao.ClassUnknown {
			c.doubt = last
		}
		return last
	})
	return doubted(last, c.doubt)
}

// doubted returns the error of the last try, as Unknown if an earlier try may have been carried out. doubt is the error
// of the earlier try; nil if it certainly did nothing.
func doubted(last, doubt error) error {
	if last == nil || doubt == nil || hongbao.ClassOf(last) == hongbao.ClassUnknown {
		return last
	}
	return hongbao.Outagef(hongbao.ClassUnknown, "an earlier try may have been carried out (%w); the last try: %w", doubt, last)
}

// whileDown retries while Redis is unreachable or does not answer, until ctx ends. It returns the error of the last
// try, because the error of ctx has no class.
func whileDown(ctx context.Context, try func() error) error {
	return retry.Do(ctx, retry.Backoff(5*time.Millisecond, 250*time.Millisecond, 0), func() (bool, error) { // ctx bounds it
		err := try()
		return hongbao.IsOutage(err), err
	})
}

// try makes the call once. When it returns nil, the grants are as durable as the campaign requires, and the receipts
// have their codes.
func (c *call) try(ctx context.Context) error {
	if c.lane.seen.Load() == nil { // the first call to this place: check its server and shard
		_, err := c.lane.readCampaign(ctx)
		if errors.Is(err, store.ErrFrozen) { // scripts on this shard would answer frozen too
			c.freeze()
			return nil
		}
		if err != nil {
			return err
		}
		c.info = c.lane.info()
	}
	c.asked = time.Now()
	clear(c.results)
	answers, err := c.askShard(ctx)
	if store.IsOutOfMemory(err) {
		answers, err = c.readWins(ctx, err)
	}
	if err != nil {
		return err
	}
	c.answers = answers
	if c.info.Durability == hongbao.DurabilityFast && !c.info.Codes {
		return nil
	}
	return c.awaitDurability(ctx)
}

func (c *call) freeze() {
	c.answers = c.answers[:0]
	for range c.batch {
		c.answers = append(c.answers, hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: time.Now()})
	}
}

// askShard makes the shard decide the grabs. If the call only asks for receipts, it reads the users' receipts.
func (c *call) askShard(ctx context.Context) ([]hongbao.Answer, error) {
	shard, terms := c.lane.shard, c.req.Terms
	if c.ask.Receipts {
		return shard.Receipts(ctx, c.req.Grabs, c.answers)
	}
	answers, err := shard.Grab(ctx, &c.req, c.answers)
	if c.req.Terms != terms {
		c.lane.learn(c.req.Terms)
	}
	return answers, err
}

// readWins answers the grabs that were granted earlier, because a full Redis still returns receipts. The other grabs
// get the error full, which says that this call did nothing. They are not tried again: Redis stays full for longer.
func (c *call) readWins(ctx context.Context, full error) ([]hongbao.Answer, error) {
	answers, err := c.lane.shard.Receipts(ctx, c.req.Grabs, c.answers)
	if err != nil || answers[0].Outcome == hongbao.OutcomeFrozen {
		return answers, err
	}
	full = doubted(fmt.Errorf("this try did nothing: %w", full), c.doubt)
	for i := range answers {
		a := &answers[i]
		switch {
		case walk.Won(a, c.req.Grabs[i].RequestID):
		case c.info.PerUser == 1 && len(a.Receipts) > 0:
			a.Outcome = hongbao.OutcomeAlreadyGranted
		default:
			a.Receipts, c.results[i].err = nil, full
		}
	}
	return answers, nil
}

// awaitDurability waits until the receipts in the answers are as durable as the campaign requires, and adds their
// codes.
func (c *call) awaitDurability(ctx context.Context) error {
	shard := c.lane.shard
	var receipts [][]hongbao.Receipt
	var users []string
	var of []int // for each item of receipts, the index of its answer
	// A sold_out answer may have receipts too, but they are not returned to the user.
	for k := range c.answers {
		if a := &c.answers[k]; len(a.Receipts) > 0 && a.Outcome != hongbao.OutcomeSoldOut {
			receipts, users, of = append(receipts, a.Receipts), append(users, c.req.Grabs[k].User), append(of, k)
		}
	}
	if len(receipts) == 0 {
		return nil
	}
	if c.info.Durability != hongbao.DurabilityFast {
		err := shard.Durable(ctx, &store.DurableCall{
			Class: c.info.Durability, Timeout: c.lane.p.cfg.DurabilityTimeout,
			Replicas: c.lane.p.cfg.Replicas, Users: users, Receipts: receipts,
		})
		if err != nil {
			return afterGrant(err)
		}
	}
	if !c.info.Codes {
		return nil
	}
	missing, err := shard.FillCodes(ctx, receipts...)
	if err != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "granted, but the codes could not be read: %w", err)
	}
	for k, err := range missing {
		if err != nil { // only this answer fails; the others have their codes
			c.results[of[k]].err = hongbao.Outagef(hongbao.ClassUnknown, "granted, but a code could not be read: %w", err)
		}
	}
	return nil
}

// afterGrant gives an error class Unknown, because the grant was already made: no error may claim that nothing
// happened.
func afterGrant(err error) error {
	switch {
	case hongbao.ClassOf(err) == hongbao.ClassUnknown:
		return err
	case hongbao.IsOutage(err):
		return hongbao.Outagef(hongbao.ClassUnknown, "granted, but not known to be durable yet: %w", err)
	}
	return hongbao.Errorf(hongbao.ClassUnknown, "granted, but it is unknown whether the grant is durable: %w", err)
}
