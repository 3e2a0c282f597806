package cli

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func balanceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "balance", Short: "Serve an HTTP balance system over the ledger: credits, balances, statements",
		Long: "Serves the balance API of docs/openapi-balance.yaml on balance.listen, with the database of\n" +
			"ledger.dsn. The server is for teams without a balance system of their own, whose workers have\n" +
			"settlement.kind=remote. On SIGTERM or SIGINT the server accepts no more requests, and answers the\n" +
			"running ones. `hongbao balance migrate` creates the tables, `hongbao key create --role client`\n" +
			"creates a client's key, and `hongbao balance fund` adds money to the client's fund, which pays its\n" +
			"credits. The server needs no Redis.",
		Example: "  hongbao balance --balance.listen=127.0.0.1:8090 --ledger.dsn=balance.db",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return run.Balance(cmd.Context(), cfg)
		},
	}
	cmd.AddCommand(dangerous(balanceFundCmd()), balanceFundsCmd(), balanceCheckCmd(), balanceMigrateCmd())
	return cmd
}
