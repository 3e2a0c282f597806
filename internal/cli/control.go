package cli

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func controlCmd() *cobra.Command {
	return &cobra.Command{
		Use: "control", Short: "Serve the administration API and the console",
		Long: "Serves the API of docs/administration.md and the pages of docs/console.md on control.listen, and\n" +
			"/livez, /readyz and /metrics on control.ops_listen. It needs the ledger, which has the API keys of\n" +
			"administrators (`hongbao key`). One process is enough for a deployment. Grabs and payments continue\n" +
			"without it. On SIGTERM or SIGINT it answers the running requests.",
		Example: "  hongbao control --config configs/production.yaml",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return run.Control(cmd.Context(), cfg)
		},
	}
}
