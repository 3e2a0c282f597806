package dev

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
)

const (
	callers  = 256    // grabs at once
	maxCrowd = 10_000 // users a second
)

var errOver = errors.New("the campaign is over")

// rain lets the crowd grab until ctx ends or a retry can't help.
func (d *Dev) rain(ctx context.Context, on *serving) {
	last := ""
	err := rain(ctx, crowd.New(on.grabber.Grab, d.say), d.Crowd, func() (string, error) {
		id, err := readyCampaign(ctx, on.App, crowdID, "A crowd's rain")
		if err == nil && id != last {
			last = id
			d.say("%d users a second grab in campaign %s: %d packets, %s", d.Crowd, id, packets, money.Text(total, currency))
		}
		return id, err
	})
	if ctx.Err() == nil {
		d.say("The crowd gives up: %v", err)
	}
}

// rain makes rate grabs a second, each by the next user. One in four users grabs twice.
// When a campaign is sold out or over, rain continues with the campaign that next returns.
func rain(ctx context.Context, c *crowd.Crowd, rate int, next func() (id string, err error)) error {
	load := crowd.Load{Callers: callers, Calls: math.MaxInt, Rate: rate}
	for {
		var id string
		if err := c.RetryUntilDecided(ctx, func() (err error) { id, err = next(); return err }); err != nil {
			return err
		}
		_, err := load.Run(ctx, func(ctx context.Context, _, i int) error {
			if i%5 == 1 {
				i--
			}
			a, err := c.Grab(ctx, hongbao.Grab{Campaign: id, User: fmt.Sprintf("guest-%d", i)})
			switch a.Outcome {
			case hongbao.OutcomeSoldOut, hongbao.OutcomeEnded, hongbao.OutcomeUnknownCampaign:
				return errors.Join(err, errOver)
			default:
				return err
			}
		})
		if !errors.Is(err, errOver) {
			return err
		}
	}
}
