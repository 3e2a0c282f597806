package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/configs"
)

// Exit codes. Settling is that of a refund that has to wait for the settlers.
const (
	exitFailed   = 1
	exitRefused  = 2
	exitSettling = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hongbao:", err)
		os.Exit(exitCode(err))
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode is 2 for what was refused before anything was done: the command line, the configuration, a specification.
func exitCode(err error) int {
	var u usageError
	var c *configs.Error
	var s *campaign.SpecError
	if errors.As(err, &u) || errors.As(err, &c) || errors.As(err, &s) {
		return exitRefused
	}
	if errors.Is(err, hongbao.ErrSettling) {
		return exitSettling
	}
	return exitFailed
}
