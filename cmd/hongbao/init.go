package main

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
		Use: "init", Short: "Found a deployment: the ledger's tables, the shards in Redis, the topic; later it brings the " +
			"tables up to date",
		Long: "Makes what a deployment needs and what is not there yet, and says what it did: the tables of the ledger, the " +
			"mark of each shard in\n" +
			"Redis, and the topic if kafka.create_topic is set. Run again, or killed on the way, it goes on where it was. " +
			"Every other command\n" +
			"only opens what is there. A Redis that another ledger knows is refused; so is one that has lost what this ledger " +
			"knows of it.",
		Example: "  hongbao init --config configs/production.yaml", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				did, err := a.Init(cmd.Context())
				if did.Ledger == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, did, func(w io.Writer) error { return writeFoundation(w, did) }), err)
			})
		},
	}
}

func writeFoundation(w io.Writer, f *app.Foundation) error {
	var b strings.Builder
	if l := f.Ledger; l != nil {
		tables, how := "tables as they were", "was founded before"
		if len(l.Tables) > 0 {
			tables = "tables made: " + strings.Join(l.Tables, ", ")
		}
		if l.Founded {
			how = "is founded"
		}
		fmt.Fprintf(&b, "ledger  %s; deployment %s %s\n", tables, l.Deployment, how)
	}
	if r := f.Redis; r != nil {
		fmt.Fprintf(&b, "redis   shards under key prefix %s: %d founded, %d founded before\n", r.KeyPrefix, r.Founded,
			r.Before)
	}
	if f.Topic != nil {
		fmt.Fprintf(&b, "topic   %s: as it must be\n", f.Topic.Topic)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
