package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hongbao-project/hongbao/internal/store"
)

func main() {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Reset() // a second signal ends the process at once
		end(signalled{s})
	}()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(plain{w: os.Stderr}, "hongbao:", err)
		if errors.Is(err, store.ErrFrozen) && !strings.Contains(err.Error(), "hongbao recover") {
			fmt.Fprintln(os.Stderr, "hongbao: `hongbao recover` shows why the shard is frozen, and what opens it")
		}
		os.Exit(exitCode(ctx, err))
	}
}
