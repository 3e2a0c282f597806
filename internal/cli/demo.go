//go:build !production

package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/dev"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

// localHint is the sentence about local commands in the help of the program.
const localHint = " `hongbao demo` shows this in 5 seconds, without any server."

// localCmds returns the commands that start servers on this machine. A build with the tag production, such as the one
// in the image, has none of them.
func localCmds() []*cobra.Command { return []*cobra.Command{devCmd(), demoCmd(), sweepCmd()} }

func demoCmd() *cobra.Command {
	d := &dev.Demo{}
	server := &dev.Dev{Demo: d, Program: os.Args[0]}
	cmd := &cobra.Command{
		Use: "demo", Short: "Show a campaign from plan to audit in 5 seconds, without any server",
		Long: "Starts the same servers as `hongbao dev`. Then it plans, funds and loads a campaign, and simulated\n" +
			"users grab, some of them twice. Some replies of Redis and Kafka are lost on purpose. Workers deliver\n" +
			"the grants to an SQLite ledger and to a Kafka broker in this process, and one worker is killed with\n" +
			"SIGKILL. Last, the demo runs an audit of everything. Redis is a redis-server if one is on the PATH,\n" +
			"else miniredis. The demo removes all of its data at the end. With --keep it continues as `hongbao\n" +
			"dev` until Ctrl-C. The exit code is 0 only if the audit finds no difference.",
		Example: "  hongbao demo\n  hongbao demo --packets 100 --total 8888 --users 1000", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.Packets < 10 || d.Packets > 1_000_000 || int64(d.Total) < d.Packets || d.Total > hongbao.MaxAmount ||
				d.Users < 1 || d.Users > 10_000_000 {
				return app.Usage("want 10 to 1,000,000 packets, a total of at least as many minor units and at most %d, and 1 to "+
					"10,000,000 users",
					hongbao.MaxAmount)
			}
			server.Out, d.Done = cmd.OutOrStdout(), func(r *dev.Result) error { return printAnswer(cmd, r, r.Write) }
			server.Ready = func(s *dev.Site) error { return printAnswer(cmd, s, s.Write) }
			if wantsJSON(cmd) {
				server.Out = io.Discard
			}
			switch {
			case !d.Keep:
				server.Listen = "127.0.0.1:0"
			case wantsJSON(cmd):
				return app.Usage("--keep prints addresses for people, and --json prints one document: leave one of them out")
			default:
				server.In = terminal()
			}
			return server.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&d.Keep, "keep", false, "after the demo, continue as hongbao dev, with API and console, until Ctrl-C")
	cmd.Flags().StringVar(&server.Listen, "listen", "127.0.0.1:8080", "with --keep: address of the API, as in hongbao dev")
	cmd.Flags().Int64Var(&d.Packets, "packets", 10_000, "number of packets of the campaign")
	cmd.Flags().Int64Var((*int64)(&d.Total), "total", 100_000, "sum of the packets, in minor units")
	cmd.Flags().IntVar(&d.Users, "users", 30_000, "number of simulated users who grab")
	return cmd
}

func sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "local-sweep FOLDER", Hidden: true, Short: "Remove a temporary folder when standard input ends",
		Args: exactly(1, "a FOLDER of `hongbao dev` or `hongbao demo`"),
		RunE: func(cmd *cobra.Command, args []string) error { return local.Sweep(args[0], cmd.InOrStdin()) },
	}
}
