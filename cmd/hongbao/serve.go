package main

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

func serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP: grab, own receipts, countdown",
		Long: "Serves the API of docs/http.md on serve.listen, and /livez and /readyz on serve.ops_listen, until SIGTERM " +
			"or SIGINT;\nthen it says that it is not ready, takes requests for serve.drain_delay more, and answers what is " +
			"under way. Users\ncome with tokens (JWT) that somebody of serve.keys has signed. The ledger is asked only for " +
			"receipts of campaigns\nthat have left Redis.",
		Example: "  hongbao serve --serve.keys=keys.json --serve.issuer=https://id.example.com --serve.audience=hongbao " +
			"--serve.facts=device=claim:device_id",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{Redis: true}, func(a *app.App) error { return a.Serve(cmd.Context()) })
		},
	}
}
