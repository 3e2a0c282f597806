package main

import (
	"errors"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/audit"
)

func auditCmd() *cobra.Command {
	var opts audit.Options
	seal := false
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare Redis, the ledger and the topic, and name every difference",
		Long: "Compares: funded = granted + left + refunded, in Redis and in the ledger; the same set of grants in Redis, " +
			"the\n" +
			"ledger and the topic, each once; seqs without a gap. With settlement.kind=remote the remote is asked for every " +
			"grant\n" +
			"besides, if it can be asked. It only reads, unless --seal is given; an audit of all campaigns leaves its verdict in " +
			"Redis for the\nmetrics. Exit code 0 if all agrees; 3 if anything " +
			"differs, or if\n" +
			"grants wait for a sink and none of its workers lives.",
		Example: "  hongbao audit\n  hongbao audit --wait 30s --json\n  hongbao audit --campaign spring-rain",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCampaigns(opts.Campaigns...); err != nil {
				return err
			}
			if opts.Wait < 0 {
				return app.Usage("--wait %s: give 0s or more", opts.Wait)
			}
			// Nearly all that an audit keeps are facts without pointers, so collecting often costs little and saves half.
			debug.SetGCPercent(25)
			return with(cmd, app.Needs{Redis: true}, func(a *app.App) error {
				report, err := a.Audit(cmd.Context(), opts)
				if err != nil {
					return err
				}
				if seal {
					err = a.Seal(cmd.Context(), report)
				}
				err = errors.Join(printAnswer(cmd, report, report.Write), err)
				if err == nil && report.Verdict != audit.Agrees {
					err = app.Found("the audit found differences")
				}
				if err != nil || report.Quiet {
					return err
				}
				s, err := a.Status(cmd.Context())
				if err != nil {
					return err
				}
				return s.Deserted()
			})
		},
	}
	cmd.Flags().DurationVar(&opts.Wait, "wait", 0, "wait this long at most until nothing is in flight any more")
	cmd.Flags().StringSliceVar(&opts.Campaigns, "campaign", nil, "audit these campaigns only")
	cmd.Flags().BoolVar(&seal, "seal", false,
		"seal the refunded campaigns that have left Redis, if all agrees: their grants are not read again")
	return cmd
}
