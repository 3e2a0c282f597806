package group

import (
	"context"
	"errors"
	"fmt"
)

// Part is a long-lived part of a process. Run blocks until its context ends or the part fails. Before it returns, it
// must end every goroutine that it started.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// errEnded says that a part returned nil before it was stopped. This counts as a failure: otherwise the process would
// exit with status 0, as if its work were finished.
var errEnded = errors.New("it ended by itself")

// Run starts the parts in order. When ctx ends or one part returns, it stops all parts in the reverse order, and waits
// for each before it stops the next one. It joins the errors of all parts, each with the part's name.
func Run(ctx context.Context, parts ...Part) error {
	type running struct {
		stop  context.CancelFunc
		ended chan error
	}
	down := make(chan struct{}, len(parts))
	var all []running
	for _, p := range parts {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := running{stop: stop, ended: make(chan error, 1)}
		go func() {
			err := p.Run(own)
			if err == nil && own.Err() == nil {
				err = errEnded
			}
			r.ended <- err
			down <- struct{}{}
		}()
		all = append(all, r)
	}
	if len(parts) > 0 {
		select {
		case <-ctx.Done():
		case <-down:
		}
	}
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		all[i].stop()
		if err := <-all[i].ended; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", parts[i].Name, err))
		}
	}
	return errors.Join(errs...)
}
