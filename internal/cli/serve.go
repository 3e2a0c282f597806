package cli

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP, and serve the administration API and the console",
		Long: "Serves the API of docs/http.md on serve.listen. If there is a ledger, the server also serves the API\n" +
			"of docs/administration.md and the pages of docs/console.md on serve.control_listen. It serves /livez\n" +
			"and /readyz on serve.ops_listen. On SIGTERM or SIGINT the server reports that it is not ready. It\n" +
			"accepts requests for the time serve.drain_delay, and answers the running requests. Users\n" +
			"authenticate with tokens (JWT) signed by a key of serve.keys, or through gateways with API keys.\n" +
			"Administrators authenticate with API keys (`hongbao key`).",
		Example: "  hongbao serve --serve.keys=keys.json --serve.issuer=https://id.example.com --serve.audience=hongbao " +
			"--serve.facts=device=claim:device_id",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return run.Serve(cmd.Context(), cfg, run.Serving{})
		},
	}
}
