package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

func doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check every server that the configuration names, and print what to fix",
		Long: "Checks settings, rights, clocks, memory, disks, certificates, groups, the ledger and the topic, and\n" +
			"changes nothing. Each finding is ok, a warning or a problem, and says what to do. A server that does\n" +
			"not answer within 30 seconds is a problem; the other servers are still checked. The exit code is 3\n" +
			"if there is a problem.",
		Example: "  hongbao doctor\n  hongbao doctor --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				e := a.Doctor(cmd.Context())
				err := printAnswer(cmd, e, func(w io.Writer) error {
					t := newColumns(w)
					for _, f := range e.Findings {
						fmt.Fprintf(t, "%s\t%s\t%s\n", styled(levelStyle(f.Level), f.Level), f.Server, f.About)
					}
					return t.Flush()
				})
				if err != nil {
					return err
				}
				return e.Err()
			})
		},
	}
}

// levelStyle returns the style of a finding's level.
func levelStyle(level string) style {
	switch level {
	case app.LevelOK:
		return good
	case app.LevelWarning:
		return warn
	}
	return bad
}
