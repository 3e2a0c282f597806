package cli

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func serveCmd() *cobra.Command {
	var with run.Serving
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP",
		Long: "Serves the API of docs/http.md on serve.listen, and /livez and /readyz on serve.ops_listen. On SIGTERM\n" +
			"or SIGINT the server reports that it is not ready. It accepts requests for the time\n" +
			"serve.drain_delay, and answers the running requests. Users authenticate with tokens (JWT) signed by a\n" +
			"key of serve.keys, or through gateways with API keys. With --control, one process also does what\n" +
			"`hongbao control` does, for development and small deployments.",
		Example: "  hongbao serve --serve.keys=keys.json --serve.issuer=https://id.example.com --serve.audience=hongbao " +
			"--serve.facts=device=claim:device_id",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return run.Serve(cmd.Context(), cfg, with)
		},
	}
	cmd.Flags().BoolVar(&with.Control, "control", false, "also serve the administration API and the console, on control.listen")
	return cmd
}
