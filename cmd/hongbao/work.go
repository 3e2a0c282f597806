package main

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func workCmd() *cobra.Command {
	var sinks []string
	cmd := &cobra.Command{
		Use: "work", Short: "Bring grants to the sinks: balance (the ledger, or a remote balance system that it records) " +
			"and kafka (the topic)",
		Long: "Runs a worker of each sink until SIGTERM or SIGINT, then drains: it takes no more, finishes what is in " +
			"flight, and hands the\n" +
			"rest to the other workers. Run as many as you like; each sink has its own consumer group.",
		Example: "  hongbao work --config configs/production.yaml\n  hongbao work --sink balance",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return run.Work(cmd.Context(), cfg, sinks)
		},
	}
	cmd.Flags().StringSliceVar(&sinks, "sink", nil, "work for these sinks only; all of deployment.sinks if not given")
	return cmd
}
