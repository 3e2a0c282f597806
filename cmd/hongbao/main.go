package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
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
	if cmd, err := root().ExecuteContextC(ctx); err != nil {
		printError(ctx, plain{w: os.Stderr}, cmd, err)
		os.Exit(exitCode(ctx, err))
	}
}
