package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// mismatch is a difference that `hongbao balance check` prints.
type mismatch struct {
	Where string `json:"where"`
	What  string `json:"what"`
	Want  int64  `json:"want"`
	Got   int64  `json:"got"`
}

func balanceCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Compare balances and funds with the credits, and check the line numbers of statements",
		Long: "Compares, in one snapshot, each account's balance with its credits, and each client's fund with the\n" +
			"client's credits and with the money put into the fund. The command only reads. The exit code is 0 if\n" +
			"there is no difference, and 3 otherwise. A difference means that someone wrote to the database by\n" +
			"hand.",
		Example: "  hongbao balance check --ledger.dsn=balance.db", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				list, err := payments.Of(a).CheckBook(cmd.Context())
				if err != nil {
					return err
				}
				out := make([]mismatch, len(list))
				for i, m := range list {
					out[i] = mismatch{m.Where, m.What, m.Want, m.Got}
				}
				err = printAnswer(cmd, struct {
					Differences []mismatch `json:"differences"`
				}{out}, func(w io.Writer) error {
					for _, m := range list {
						fmt.Fprintln(w, m)
					}
					_, err := fmt.Fprintf(w, "differences: %d\n", len(list))
					return err
				})
				if err == nil && len(list) > 0 {
					err = app.NeedsAttention("balances, funds and credits do not agree: stop the server; the database was written by hand")
				}
				return err
			})
		},
	}
}
