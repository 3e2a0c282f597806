package main

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP; administration and the console besides",
		Long: "Serves the API of docs/http.md on serve.listen, that of docs/administration.md and the pages of " +
			"docs/console.md on\nserve.control_listen if there is a ledger, and /livez and /readyz on serve.ops_listen, until " +
			"SIGTERM or SIGINT; then it\nsays that it is not ready, takes requests for serve.drain_delay more, and answers " +
			"what is under way. Users come with\ntokens (JWT) that somebody of serve.keys has signed, or by gateways with " +
			"API keys;\nadministrators come with API keys (`hongbao key`).",
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
