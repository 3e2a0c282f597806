package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func healthCmd() *cobra.Command {
	return &cobra.Command{
		Use: "health serve|control|work|balance", Short: "Ask a long-lived process on this machine whether it is ready",
		Long: "Asks /readyz of the ops listener that the configuration names; run the command with the\n" +
			"configuration of that process. The image has no shell and no other program, so the health check of a\n" +
			"container runs this command. The exit code is 5 if the process is not ready.\n" +
			"A server that can't reach Redis stays ready, and answers again as soon as Redis does; `hongbao status`\n" +
			"and `hongbao doctor` examine the whole deployment.",
		Example: "  hongbao health serve",
		Args:    exactly(1, "one of serve, control, work and balance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			h, err := run.CheckHealth(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			return printAnswer(cmd, h, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s: %s\n", h.Command, h.Status)
				return err
			})
		},
	}
}
