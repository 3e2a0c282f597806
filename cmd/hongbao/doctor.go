package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

func doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at every server that the configuration names, and say what to mend",
		Long: "Looks at settings, rights, clocks, memory, disks, certificates, groups, the ledger and the topic, and changes " +
			"nothing. Each\n" +
			"finding is ok, a warning or a problem, with what to do. A server that does not answer is a problem after 20 " +
			"seconds, and\n" +
			"hides no other.\n" +
			"Exit code 3 if there is a problem.",
		Example: "  hongbao doctor\n  hongbao doctor --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				e := a.Doctor(cmd.Context())
				err := printAnswer(cmd, e, func(w io.Writer) error {
					t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
					for _, f := range e.Findings {
						fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, f.Server, f.About)
					}
					return t.Flush()
				})
				if err != nil {
					return err
				}
				return e.Verdict()
			})
		},
	}
}
