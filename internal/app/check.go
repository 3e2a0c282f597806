package app

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao/internal/configs"
)

type serverCheck struct {
	server string
	sink   string // the sink that uses the server; "" if every deployment uses it
	check  func(context.Context) error
}

// Check runs the same checks as the start of a worker. It returns the names of the servers that passed; the error names
// each server that failed.
func (a *App) Check(ctx context.Context) ([]string, error) {
	checks := []serverCheck{
		{"redis", "", a.OpenRedis},
		{"ledger", configs.SinkBalance, a.ledger.Ready},
		{"topic", configs.SinkKafka, a.publishable},
	}
	for _, sink := range a.Config.Opened() {
		var kind string
		switch {
		case a.Config.IsWebhook(sink):
			kind = "webhook "
		case a.Config.IsOwn(sink):
			kind = "sink "
		default:
			continue
		}
		checks = append(checks, serverCheck{kind + sink, sink, func(ctx context.Context) error { return a.checkUnread(ctx, sink) }})
	}
	right := []string{}
	var errs []error
	for _, c := range checks {
		if c.sink != "" && !a.Has(c.sink) {
			continue
		}
		if err := c.check(ctx); err != nil {
			errs = append(errs, err)
		} else {
			right = append(right, c.server)
		}
	}
	return right, errors.Join(errs...)
}
