package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// goOn says for commands what they leave when a signal ends them, and how to go on. The others are simply run again.
var goOn = map[string]string{
	"archive":            "run the same command again: it continues",
	"audit":              "it stored no verdict: run it again",
	"campaign create":    "run the same command again: it continues",
	"campaign refund":    "a campaign is refunded once: run the same command again, also if the money has moved",
	"campaign top-up":    "an order adds its packets once: run the same command again",
	"dead confirm":       "run it again with --dry-run: it counts the letters that are left",
	"dead drop":          "run it again with --dry-run: it counts the letters that are left",
	"dead requeue":       "run it again with --dry-run: it counts the letters that are left",
	"export":             "each file that is there is complete: run the same command again",
	"key create":         "`hongbao key list` shows whether the key was made: revoke a key whose secret was not printed",
	"key rotate":         "run the same command again: it says whether the old secret is still valid",
	"quarantine resolve": "the first decision is final: run the same command again",
	"replay":             "run it again under the same name: it continues",
}

// printError prints why a command failed. If a signal ended the command, its error names the call that was interrupted and
// may blame a server, so printError prints how to continue instead.
func printError(ctx context.Context, w io.Writer, cmd *cobra.Command, err error) {
	if exitCode(ctx, err) > exitInterrupted && !app.IsStopped(err) {
		name := strings.TrimPrefix(cmd.CommandPath(), "hongbao ")
		then, found := goOn[name]
		if !found {
			then = "run the same command again"
		}
		err = fmt.Errorf("%s: %w; %s", name, context.Cause(ctx), then)
	}
	for _, part := range joined(err) {
		fmt.Fprintln(w, "hongbao:", part)
	}
	if ops.IsFrozen(err) && !strings.Contains(err.Error(), "hongbao recover") {
		fmt.Fprintln(w, "hongbao: `hongbao recover` shows why the shard is frozen, and what opens it")
	}
}

// joined returns the errors that errors.Join has put together, each of which begins a line.
func joined(err error) []error {
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	parts := list.Unwrap()
	if err.Error() != errors.Join(parts...).Error() {
		return []error{err} // fmt.Errorf with several %w
	}
	var all []error
	for _, part := range parts {
		all = append(all, joined(part)...)
	}
	return all
}
