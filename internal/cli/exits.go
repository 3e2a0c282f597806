package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// exit is an exit code and its meaning.
type exit struct {
	code int
	what string
}

// The exit codes of commands. A signal ends a command with 128 plus its number, as in a shell.
const (
	exitDone        = 0
	exitFailed      = 1
	exitRefused     = 2
	exitFound       = 3
	exitUndecided   = 4
	exitOutage      = 5
	exitInterrupted = 128
)

// exits is the table in the help and in docs/scripts.md.
var exits = []exit{
	{exitDone, "done, or decided: a refused grab is decided too"},
	{exitFailed, "failed, and fails again until a person does what standard error says"},
	{exitRefused, "nothing was done: the command line, the configuration or a file is wrong"},
	{exitFound, "done, and the answer names what a person must check"},
	{exitUndecided, "not decided yet: run the same command again"},
	{exitOutage, "a server can't be reached or does not work: run the same command again"},
	{exitInterrupted + int(syscall.SIGINT),
		"ended by SIGINT (Ctrl-C); 143: by SIGTERM. A command that serves until a signal stops it ends with 0"},
}

func exitsText() string {
	var b strings.Builder
	b.WriteString("Exit codes of every command:\n")
	for _, e := range exits {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.what)
	}
	return b.String()
}

// undecidedError reports that nothing is decided yet.
type undecidedError struct{ error }

func (e undecidedError) Unwrap() error { return e.error }

// signalled is the cause of a context that was cancelled by a signal.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "ended by a signal: " + s.String() }

// Is makes a signal look like context.Canceled to callers that check for cancellation.
func (signalled) Is(target error) bool { return target == context.Canceled }

// exitCode returns the exit code for a command's error. ctx is the context of the command.
func exitCode(ctx context.Context, err error) int {
	var (
		stopped   signalled
		refused   app.UsageError
		config    *configs.Error
		spec      *campaign.SpecError
		differs   app.AttentionError
		undecided undecidedError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(context.Cause(ctx), &stopped) && (errors.Is(err, context.Canceled) || hongbao.IsOutage(err)):
		if n, ok := stopped.Signal.(syscall.Signal); ok {
			return exitInterrupted + int(n)
		}
		return exitFailed
	case errors.As(err, &refused), errors.As(err, &config), errors.As(err, &spec):
		return exitRefused
	case errors.As(err, &differs):
		return exitFound
	case onlyOutages(err):
		return exitOutage
	case errors.As(err, &undecided), hongbao.IsWaiting(err), hongbao.ClassOf(err) == hongbao.ClassTransient &&
		!hongbao.IsOutage(err):
		return exitUndecided
	}
	return exitFailed
}

// onlyOutages reports whether all errors joined in err are outages. Other errors need a person, so a retry does not
// help.
func onlyOutages(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the function walks the tree of errors itself
	case *hongbao.Error:
		return e.Outage
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !onlyOutages(err) })
	}
	inner := errors.Unwrap(err)
	return inner != nil && onlyOutages(inner)
}
