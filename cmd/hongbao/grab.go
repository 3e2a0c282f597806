package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

func grabCmd() *cobra.Command {
	g := hongbao.Grab{}
	asJSON := false
	cmd := &cobra.Command{
		Use: "grab CAMPAIGN USER", Short: "Make one grab and print the answer",
		Long: "Makes one grab. A refusal is an answer, not a failure: the exit code is 0 for both. After a failure, run it again\n" +
			"with the same --request-id: if the first one was granted, it gets the same receipt.",
		Example: "  hongbao grab spring-rain u1 --fact device=d1\n  hongbao grab spring-rain u2 --fact device=d2 --fact channel=app --request-id r1 --json",
		Args:    exactly(2, "a CAMPAIGN and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g.Campaign, g.User = args[0], args[1]
			if err := g.Check(); err != nil {
				return usageError{err}
			}
			return with(cmd, needs{redis: true}, func(d *deps) error {
				cfg := d.cfg.ProducerConfig()
				cfg.Redis, cfg.Space, cfg.Log = d.redis, d.space, d.log
				p, err := producer.New(cfg)
				if err != nil {
					return err
				}
				a, err := p.Grab(cmd.Context(), &g)
				if err != nil {
					return err
				}
				if err := p.Close(context.WithoutCancel(cmd.Context())); err != nil {
					return err
				}
				return printAnswer(cmd, &g, &a, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&g.RequestID, "request-id", "", "makes a repeat recognisable; required where a user may have several packets")
	cmd.Flags().StringVar(&g.Trace, "traceparent", "", "W3C traceparent that travels with the grant")
	cmd.Flags().StringToStringVar(&g.Facts, "fact", nil, "name=value that the campaign's limits count by; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return cmd
}

func printAnswer(cmd *cobra.Command, g *hongbao.Grab, a *hongbao.Answer, asJSON bool) error {
	w := cmd.OutOrStdout()
	if asJSON {
		return json.NewEncoder(w).Encode(a)
	}
	fmt.Fprintln(w, a.Outcome)
	for _, r := range a.Receipts {
		writeReceipt(w, &r)
	}
	switch {
	case a.Limit != nil && !a.Limit.Resets.IsZero():
		fmt.Fprintf(w, "limit of %d by %s per %s; it counts anew at %s\n", a.Limit.Limit.Max, a.Limit.Limit.By, a.Limit.Limit.Per, a.Limit.Resets.UTC().Format(time.RFC3339))
	case a.Limit != nil:
		fmt.Fprintf(w, "limit of %d by %s per %s\n", a.Limit.Limit.Max, a.Limit.Limit.By, a.Limit.Limit.Per)
	case !a.Starts.IsZero() && !a.Starts.After(a.Time):
		fmt.Fprintln(w, "its window has begun, but it is still being loaded")
	case !a.Starts.IsZero():
		fmt.Fprintf(w, "it starts at %s\n", a.Starts.UTC().Format(time.RFC3339))
	case !a.Outcome.Final():
		fmt.Fprintf(w, "nothing is decided yet: grab again, with --request-id %s\n", g.RequestID)
	}
	return nil
}
