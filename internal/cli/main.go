package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/configs"
)

// ownSinks is the key under which a command's context has the functions that open the user's own sinks.
type ownSinks struct{}

// handlersOf returns the functions that open the user's own sinks.
func handlersOf(cmd *cobra.Command) map[string]configs.OpenHandler {
	own, _ := cmd.Context().Value(ownSinks{}).(map[string]configs.OpenHandler)
	return own
}

// Main runs the program with the arguments of the process, and returns its exit code. own opens the user's own sinks, by
// name.
func Main(own map[string]configs.OpenHandler) int {
	ctx, end := context.WithCancelCause(context.WithValue(context.Background(), ownSinks{}, own))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Reset() // a second signal ends the process at once
		end(signalled{s})
	}()
	if cmd, err := root().ExecuteContextC(ctx); err != nil {
		printError(ctx, plain{w: os.Stderr}, cmd, err)
		return exitCode(ctx, err)
	}
	return 0
}
