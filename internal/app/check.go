package app

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao/internal/configs"
)

// Check runs every check of a worker's start. It returns the names of the servers that passed. The error names each
// server that failed.
func (a *App) Check(ctx context.Context) ([]string, error) {
	checks := []struct {
		server string
		sink   string // the sink that uses the server; "" for a server of every deployment
		check  func(context.Context) error
	}{
		{"redis", "", a.openRedis},
		{"ledger", configs.SinkBalance, a.ledger.Ready},
		{"topic", configs.SinkKafka, func(ctx context.Context) error {
			topic, err := a.openTopic(ctx)
			if err == nil {
				topic.Close()
			}
			return err
		}},
	}
	right := []string{}
	var errs []error
	for _, c := range checks {
		if c.sink != "" && !a.has(c.sink) {
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
