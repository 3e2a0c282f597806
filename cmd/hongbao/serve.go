package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/control"
)

func serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP: grab, own receipts, countdown",
		Long: "Serves the API of docs/http.md on serve.listen, that of docs/administration.md on serve.control_listen if " +
			"there is a\nledger, and /livez and /readyz on serve.ops_listen, until SIGTERM or SIGINT; then it says that it " +
			"is not ready, takes\nrequests for serve.drain_delay more, and answers what is under way. Users come with " +
			"tokens (JWT) that somebody of\nserve.keys has signed, or by gateways that sign (serve.gateway_keys) or have API " +
			"keys; administrators come with API\nkeys (`hongbao key`).",
		Example: "  hongbao serve --serve.keys=keys.json --serve.issuer=https://id.example.com --serve.audience=hongbao " +
			"--serve.facts=device=claim:device_id",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{Redis: true}, func(a *app.App) error { return serveAll(cmd.Context(), a) })
		},
	}
}

// serveAll gives the control listener the administration API, if there is a ledger: that has the API keys.
func serveAll(ctx context.Context, a *app.App) error {
	if a.Config.Ledger.DSN == "" {
		a.Log().Info("no control listener: ledger.dsn is empty, and the API keys stand in the ledger")
		return a.Serve(ctx, nil)
	}
	cfg := a.Config.ServeConfig()
	c, err := control.New(a, a.Authority(), a.Log(), control.Config{
		AnswerTime: cfg.AnswerTime(), Patience: min(controlPatience, cfg.AnswerTime()/2),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := c.API().Handler()
	if err != nil {
		return err
	}
	return a.Serve(ctx, h)
}

// controlPatience is how long a request waits for work that goes on by itself.
const controlPatience = 10 * time.Second
