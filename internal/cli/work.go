package cli

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func workCmd() *cobra.Command {
	var sinks []string
	cmd := &cobra.Command{
		Use: "work", Short: "Deliver grants to the sinks: balance (the ledger, or a remote balance system) and kafka (the topic)",
		Long: "Runs a worker for each sink until SIGTERM or SIGINT. Then the worker takes no more grants, finishes\n" +
			"the grants in its running calls, and returns the other grants to the other workers. You can run any\n" +
			"number of workers. Each sink has its own consumer group.",
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
	cmd.Flags().StringSliceVar(&sinks, "sink", nil, "only these sinks (default all of deployment.sinks)")
	return cmd
}
