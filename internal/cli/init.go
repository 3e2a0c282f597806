package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

func initCmd() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Initialize a deployment: the ledger's tables, the shards in Redis, the topic; later runs update the tables",
		Long: "Creates what a deployment needs and does not have yet, and prints what it did: the tables of the\n" +
			"ledger, the mark of each shard in Redis, and the topic if kafka.create_topic is set. If the command\n" +
			"was killed, run it again: it continues. Every other command only opens what exists. `hongbao init`\n" +
			"refuses a Redis that belongs to another ledger, and a Redis that has lost data that this ledger\n" +
			"knows. Without kafka.create_topic it only warns if Kafka does not answer.",
		Example: "  hongbao init --config configs/production.yaml", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				did, err := a.Init(cmd.Context())
				if did.Ledger == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, did, func(w io.Writer) error { return writeInitialized(w, did) }), err)
			})
		},
	}
}

func writeInitialized(w io.Writer, f *app.Initialized) error {
	var b strings.Builder
	if l := f.Ledger; l != nil {
		tables, how := "tables as they were", "was founded before"
		if len(l.Tables) > 0 {
			tables = "tables made: " + strings.Join(l.Tables, ", ")
		}
		if l.New {
			how = "is founded"
		}
		fmt.Fprintf(&b, "ledger  %s; deployment %s %s\n", tables, l.Deployment, how)
	}
	if r := f.Redis; r != nil {
		fmt.Fprintf(&b, "redis   shards under key prefix %s: %d founded, %d founded before\n", r.KeyPrefix, r.New,
			r.Before)
	}
	if f.Topic != nil {
		fmt.Fprintf(&b, "topic   %s: as it must be\n", f.Topic.Topic)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
