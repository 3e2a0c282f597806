package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func sinkRemoveCmd() *cobra.Command {
	var in deliveries.SinkRemoval
	cmd := &cobra.Command{
		Use: "remove SINK", Short: "Remove a sink that deployment.sinks does not name any more",
		Long: `First take the sink out of deployment.sinks, with its section, and restart every process. The command then deletes the
sink's consumer groups and dead letters, ends its pauses and its limit, and records which events it has got. If a sink
of that name is added later, it gets only the events that are then in the stream and that it has not got.

A removed sink keeps events in Redis until this command has run. The command is refused while a worker of the sink is
alive. It is also refused if grants wait for the sink, unless --give-up allows it. The Redis user must be allowed to run
XGROUP DESTROY. The journal keeps --by and --why.`,
		Example: "  hongbao sink remove crm --by ann --why \"the CRM reads the topic now\"\n" +
			"  hongbao sink remove crm --give-up 1203 --by ann --why \"the CRM is gone\"",
		Args: exactly(1, "one SINK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(cmd, &in.Decision); err != nil {
				return err
			}
			in.Sink = args[0]
			return with(cmd, app.Needs{}, func(a *app.App) error {
				out, err := deliveries.Of(a).RemoveSink(cmd.Context(), in)
				if out == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, out, func(w io.Writer) error { return writeRemovedSink(w, out) }), err)
			})
		},
	}
	addDecision(cmd.Flags(), &in.Decision, "; stored in the journal (required)")
	cmd.Flags().Int64Var(&in.GiveUp, "give-up", 0, "the most grants and closes that the sink may never get")
	return cmd
}

func writeRemovedSink(w io.Writer, r *deliveries.RemovedSink) error {
	if r.Shards == 0 && r.Letters == 0 {
		_, err := fmt.Fprintf(w, "%s has no group on any shard and no dead letter: nothing was left to remove\n", r.Sink)
		return err
	}
	_, err := fmt.Fprintf(w, "%s is removed from %s. It never gets %s grants and closes that waited; %s dead letters are dropped.\n",
		r.Sink, plural.Of(r.Shards, "shard"), money.Count(r.GivenUp), money.Count(r.Letters))
	return err
}
