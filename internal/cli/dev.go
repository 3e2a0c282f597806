//go:build !production

package cli

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
		Use: "dev", Short: "Run API, console and workers on this machine until Ctrl-C, with no server installed",
		Long: "Runs a complete deployment: Redis (a redis-server if one is on the PATH, else miniredis), a Kafka\n" +
			"broker in this process, an SQLite ledger, three workers in separate processes, the API and the\n" +
			"console, with an open campaign. The command prints the addresses, an API key that is new at each\n" +
			"start, and commands to copy. With --data-dir it keeps its data, and the next start continues with\n" +
			"them. --data-dir needs a redis-server. An address other than loopback needs TLS (serve.tls_cert,\n" +
			"control.tls_cert) or unsafe.allow. Knobs are flags here, too: --serve.rate=50.",
		Example: "  hongbao dev\n  hongbao dev --data-dir ./dev-data --crowd 50\n  hongbao dev --listen 127.0.0.1:9000 --env dev.env",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Program, d.Flags, d.Out = os.Args[0], cmd.Flags(), cmd.OutOrStdout()
			d.In, d.Handlers = terminal(), handlersOf(cmd)
			if wantsJSON(cmd) {
				d.Out = cmd.ErrOrStderr()
			}
			d.Ready = func(s *dev.Site) error { return printAnswer(cmd, s, s.Write) }
			return d.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.Listen, "listen", "127.0.0.1:8080",
		"address of the API; the console has the next port, and metrics the port after it; port 0 selects free ports")
	flags.StringVar(&d.DataDir, "data-dir", "", "folder for the data; the next start continues with them (default: the data are lost at the end)")
	flags.StringVar(&d.EnvFile, "env", "",
		"write the addresses and keys to this file when all servers are ready; a shell reads it with . FILE")
	flags.IntVar(&d.Crowd, "crowd", 0, "number of simulated users who grab in each second")
	return cmd
}

// terminal returns standard input if it is a terminal, else nil.
func terminal() io.Reader {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	return os.Stdin
}
