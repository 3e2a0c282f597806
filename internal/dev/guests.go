package dev

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// guestRate is how many guests grab in a second, unless the user says more. One can watch a rain at this rate.
const guestRate = 20

// guests are simulated users in a campaign of the user's choice. Its methods are for one goroutine.
type guests struct {
	say  local.Say
	spec func(ctx context.Context, id string) (hongbao.Campaign, error)
	grab func(context.Context, *hongbao.Grab) (hongbao.Answer, error)

	next atomic.Int64  // the number of the next guest
	end  func()        // nil: no guests grab
	over chan struct{} // closed when the guests are gone
}

func newGuests(say local.Say, on *serving) *guests {
	return &guests{say: say, grab: on.grabber.Grab, spec: func(ctx context.Context, id string) (hongbao.Campaign, error) {
		shown, err := campaigns.Of(on.App).Show(ctx, id)
		return shown.Spec, err
	}}
}

// press starts guests in the campaign of its first word, at the rate of the second one, or stops them if there is no word.
// It reports whether the words are understood.
func (g *guests) press(ctx context.Context, words []string) bool {
	if len(words) > 2 {
		return false
	}
	running := g.end != nil
	g.stop()
	if len(words) == 0 {
		return running
	}
	rate := guestRate
	for _, word := range words[1:] {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxCrowd {
			g.say("g CAMPAIGN RATE: want 1 to %d users a second", maxCrowd)
			return true
		}
		rate = n
	}
	c, err := g.spec(ctx, words[0])
	if err != nil {
		g.say("g: %v", err)
		return true
	}
	ctx, g.end = context.WithCancel(ctx)
	over := make(chan struct{})
	g.over = over
	g.say("%d users a second grab in campaign %s; g and Enter stops them", rate, c.ID)
	go func() {
		defer close(over)
		if err := g.run(ctx, &c, rate); ctx.Err() == nil {
			g.say("The users in campaign %s stop: %v", c.ID, err)
		}
	}()
	return true
}

// stop stops the guests, and waits until they are gone.
func (g *guests) stop() {
	if g.end == nil {
		return
	}
	g.end()
	<-g.over
	g.end = nil
}

// run lets guests grab until ctx ends or the campaign refuses all of them.
func (g *guests) run(ctx context.Context, c *hongbao.Campaign, rate int) error {
	users := crowd.New(g.grab, g.say)
	load := crowd.Load{Callers: min(callers, rate), Calls: math.MaxInt, Rate: rate}
	_, err := load.Run(ctx, func(ctx context.Context, _, _ int) error {
		user := fmt.Sprintf("guest-%d", g.next.Add(1))
		a, err := users.Grab(ctx, hongbao.Grab{Campaign: c.ID, User: user, Facts: factsOf(c, user)})
		switch a.Outcome {
		case hongbao.OutcomeSoldOut, hongbao.OutcomeEnded, hongbao.OutcomeUnknownCampaign, hongbao.OutcomeNotStarted:
			return errors.Join(err, fmt.Errorf("the answer is %s", a.Outcome))
		default:
			return err
		}
	})
	return err
}

// factsOf gives a user each fact by which the campaign's limits count.
func factsOf(c *hongbao.Campaign, user string) map[string]string {
	facts := map[string]string{}
	for _, l := range c.Limits {
		if l.By != hongbao.ByUser {
			facts[l.By] = user
		}
	}
	return facts
}
