package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

func balanceMigrateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Create or update the tables of a database that only hongbao balance uses",
		Long: "Creates the tables in the database of ledger.dsn, or updates them after an upgrade, and prints each\n" +
			"step. The command is for a database that only `hongbao balance` uses. `hongbao init` updates the\n" +
			"tables of a deployment. Programs of an older build may not know the new tables: upgrade them first,\n" +
			"or stop them.",
		Example: "  hongbao balance migrate --ledger.dsn=balance.db", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				steps, err := a.Migrate(cmd.Context())
				if err != nil {
					return err
				}
				return printAnswer(cmd, struct {
					Steps []string `json:"tables_made"`
				}{append([]string{}, steps...)}, func(w io.Writer) error {
					text := "the tables are up to date"
					if len(steps) > 0 {
						text = "tables made: " + strings.Join(steps, ", ")
					}
					_, err := fmt.Fprintln(w, text)
					return err
				})
			})
		},
	}
}
