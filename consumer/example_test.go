package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
)

// A program adds its own middleware, which reports how long each call took, and Timeout, which limits the calls.
func ExampleConfig_middleware() {
	logged := func(next hongbao.Handler) hongbao.Handler {
		return hongbao.HandlerFunc(func(ctx context.Context, batch hongbao.Batch) []error {
			grants := batch.Grants
			begin := time.Now()
			errs := next.Handle(ctx, testkit.Batch(grants))
			fmt.Printf("%d grants, quick: %v\n", len(grants), time.Since(begin) < time.Second)
			return errs
		})
	}
	cfg := consumer.DefaultConfig()
	cfg.Middleware = []func(hongbao.Handler) hongbao.Handler{logged, consumer.Timeout(20 * time.Millisecond)}
	cfg.Handler = hongbao.HandlerFunc(func(ctx context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		<-ctx.Done() // a sink that does not answer
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = ctx.Err()
		}
		return errs
	})

	// consumer.New wraps the handler in this way.
	h := cfg.Handler
	for i := len(cfg.Middleware) - 1; i >= 0; i-- {
		h = cfg.Middleware[i](h)
	}
	errs := h.Handle(context.Background(), testkit.Batch(make([]hongbao.Grant, 3)))
	fmt.Println(hongbao.ClassOf(errs[0]), errs[0])
	// Output:
	// 3 grants, quick: true
	// unknown the handler did not answer within 20ms: context deadline exceeded
}
