package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/front/control"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

func serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Answer grabs over HTTP; administration and the console besides",
		Long: "Serves the API of docs/http.md on serve.listen, that of docs/administration.md and the pages of " +
			"docs/console.md on\nserve.control_listen if there is a ledger, and /livez and /readyz on serve.ops_listen, until " +
			"SIGTERM or SIGINT; then it\nsays that it is not ready, takes requests for serve.drain_delay more, and answers " +
			"what is under way. Users come with\ntokens (JWT) that somebody of serve.keys has signed, or by gateways that sign " +
			"(serve.gateway_keys) or have API keys;\nadministrators come with API keys (`hongbao key`).",
		Example: "  hongbao serve --serve.keys=keys.json --serve.issuer=https://id.example.com --serve.audience=hongbao " +
			"--serve.facts=device=claim:device_id",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				if err := a.CheckServe(); err != nil {
					return err
				}
				if err := a.Await(cmd.Context(), "serve"); err != nil || cmd.Context().Err() != nil {
					return err
				}
				return serveAll(cmd.Context(), a, app.Serving{}, nil)
			})
		},
	}
}

// serveAll gives the control listener the administration API and the console, if there is a ledger: that has the API
// keys. faults are those of a development server, else nil.
func serveAll(ctx context.Context, a *app.App, with app.Serving, faults console.Faults) error {
	if a.Config.Ledger.DSN == "" {
		a.Log().Info("no control listener: ledger.dsn is empty, and the API keys stand in the ledger")
		return a.Serve(ctx, with)
	}
	cfg, authority := a.Config.ServeConfig(), a.Authority()
	c, err := control.New(a, authority, a.Log(), control.Config{
		AnswerTime: cfg.AnswerTime(), Patience: min(controlPatience, cfg.AnswerTime()/2),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	api, err := c.API().Handler()
	if err != nil {
		return err
	}
	pages, err := console.New(a.Config.Console, console.Deps{Source: a.PageSource(), Actions: a.PageActions(),
		Authority: authority, Faults: faults, Log: a.Log(), Deployment: a.Config.Deployment.ID, TLS: cfg.ControlTLS != nil})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/v1", "/v1/", "/openapi.json"} {
		mux.Handle(path, api)
	}
	mux.Handle("/", pages)
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- pages.Run(ctx) }()
	with.Control = web.CleanPaths(mux, api)
	err = a.Serve(ctx, with)
	cancel()
	return errors.Join(err, <-ran)
}

// controlPatience is how long a request waits for work that goes on by itself.
const controlPatience = 10 * time.Second
