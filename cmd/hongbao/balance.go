package main

import (
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/run"
)

func balanceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "balance", Short: "Serve an HTTP balance system over the ledger: credits, balances, statements",
		Long: "Serves the balance API of docs/openapi-balance.yaml on balance.listen, over the database of ledger.dsn, " +
			"until SIGTERM or SIGINT;\n" +
			"then it takes no more and answers what is under way. It is what a team without a balance system of its own runs, " +
			"and the\n" +
			"other end of settlement.kind=remote. `hongbao balance migrate` makes the tables, `hongbao key create --role client` " +
			"makes a client's\n" +
			"key, and `hongbao balance fund` fills what the client's credits come from. Redis is not needed.",
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
