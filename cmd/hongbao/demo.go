package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/demo"
	"github.com/hongbao-project/hongbao/internal/local"
)

func demoCmd() *cobra.Command {
	d := &demo.Demo{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Show all of it in half a minute, with no server at all",
		Long: "Plans, funds and loads a campaign; simulated users grab, some twice, and some replies are lost on purpose; a " +
			"worker brings the\n" +
			"grants to an SQLite ledger and to an in-process Kafka broker, and is killed with SIGKILL in the middle; then " +
			"everything is\n" +
			"audited. Redis is a redis-server if one is on the PATH, else miniredis. All of it is gone afterwards.\n" +
			"Exit code 0 only if the audit agrees.",
		Example: "  hongbao demo\n  hongbao demo --packets 100 --total 8888 --users 1000", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.Packets < 10 || d.Packets > 1_000_000 || d.Total < d.Packets || d.Total > int64(hongbao.MaxAmount) ||
				d.Users < 1 || d.Users > 10_000_000 {
				return app.Usage("want 10 to 1,000,000 packets, a total of at least as many minor units and at most %d, and 1 to "+
					"10,000,000 users",
					hongbao.MaxAmount)
			}
			d.Out = cmd.OutOrStdout()
			if wantsJSON(cmd) {
				d.Out = io.Discard
			}
			result, err := d.Run(cmd.Context())
			if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
				return fmt.Errorf("the demo was stopped: %w", context.Cause(cmd.Context()))
			}
			if result == nil {
				return err
			}
			return errors.Join(printAnswer(cmd, result, result.Write), err)
		},
	}
	cmd.Flags().Int64Var(&d.Packets, "packets", 10_000, "packets of the campaign")
	cmd.Flags().Int64Var(&d.Total, "total", 100_000, "sum of the packets, in minor units")
	cmd.Flags().IntVar(&d.Users, "users", 30_000, "users who grab")
	return cmd
}

func sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "local-sweep FOLDER", Hidden: true, Short: "Remove a temporary folder when standard input ends",
		Args: exactly(1, "a FOLDER of `hongbao dev` or `hongbao demo`"),
		RunE: func(cmd *cobra.Command, args []string) error { return local.Sweep(args[0], cmd.InOrStdin()) },
	}
}
