//go:build !production

package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hongbao-project/hongbao/internal/dev"
)

func devCmd() *cobra.Command {
	d := &dev.Dev{}
	cmd := &cobra.Command{
		Use: "dev", Short: "Run all of it on this machine until Ctrl-C, with no server installed: API, console, workers",
		Long: "Runs a deployment of its own: Redis (redis-server if one is on the PATH, else miniredis), a Kafka broker in " +
			"this process, an\n" +
			"SQLite ledger, three workers as processes of their own, the API and the console. A campaign is open. It prints " +
			"the addresses,\n" +
			"a key that is new at each start, and commands to copy. With --data-dir what was done stays, and the next start " +
			"goes on with it;\n" +
			"that needs a redis-server. A listener leaves loopback only with TLS (serve.tls_cert, serve.control_tls_cert) " +
			"or by unsafe.allow.\nKnobs are flags here, too: --serve.rate=50.",
		Example: "  hongbao dev\n  hongbao dev --data-dir ./dev-data --crowd 50\n  hongbao dev --listen 127.0.0.1:9000 --env dev.env",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Program, d.Flags, d.Out = os.Args[0], cmd.Flags(), cmd.OutOrStdout()
			d.In = terminal()
			if wantsJSON(cmd) {
				d.Out = cmd.ErrOrStderr()
			}
			d.Ready = func(s *dev.Site) error { return printAnswer(cmd, s, s.Write) }
			return d.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.Listen, "listen", "127.0.0.1:8080",
		"address of the API; the console has the next port, metrics the one after; port 0 takes free ones")
	flags.StringVar(&d.DataDir, "data-dir", "", "folder that keeps what was done (default: nothing is kept)")
	flags.StringVar(&d.EnvFile, "env", "", "file that gets the addresses and keys for a shell, once all is ready: . FILE")
	flags.IntVar(&d.Crowd, "crowd", 0, "simulated users who come and grab each second")
	return cmd
}

// terminal returns standard input if it is a terminal, else nil.
func terminal() io.Reader {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	return os.Stdin
}
