package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// clientFund is a fund of a client, as `balance fund` and `balance funds` print it.
type clientFund struct {
	Client   string         `json:"client"`
	Currency string         `json:"currency"`
	Funded   hongbao.Amount `json:"funded"`
	Credited hongbao.Amount `json:"credited"`
	Left     hongbao.Amount `json:"left"`
	Credits  int64          `json:"credits"`
}

func printableFund(f *model.Fund) clientFund {
	return clientFund{f.Client, f.Currency, f.Funded, f.Credited, f.Left(), f.Credits}
}

func balanceFundsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "funds", Short: "List the clients' funds, with the amounts put in, credited and left",
		Example: "  hongbao balance funds --ledger.dsn=balance.db", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				funds, err := payments.Of(a).Funds(cmd.Context())
				if err != nil {
					return err
				}
				out := make([]clientFund, len(funds))
				for i := range funds {
					out[i] = printableFund(&funds[i])
				}
				return printAnswer(cmd, map[string]any{"funds": out}, func(w io.Writer) error { return writeFunds(w, out) })
			})
		},
	}
}

func writeFunds(w io.Writer, funds []clientFund) error {
	t := newColumns(w)
	fmt.Fprintln(t, "CLIENT\tFUNDED\tCREDITED\tLEFT\tCREDITS")
	for _, f := range funds {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", f.Client, money.Text(f.Funded, f.Currency), money.Text(f.Credited, f.Currency),
			money.Text(f.Left, f.Currency), f.Credits)
	}
	return t.Flush()
}

func balanceFundCmd() *cobra.Command {
	var f model.Funding
	cmd := &cobra.Command{
		Use: "fund CLIENT", Short: "Add money to a client's fund, which pays its credits",
		Long: "Adds an amount to the client's fund in a currency, once for each --id. A repeat of the command moves\n" +
			"no money. A credit that exceeds the fund is refused with status 503 and code fund_exhausted, until\n" +
			"money is added.",
		Example: "  hongbao balance fund worker --amount 100000000 --currency CNY --id budget-2026-11 --by ann --why \"the " +
			"budget\" --ledger.dsn=balance.db",
		Args: exactly(1, "one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Client = args[0]
			if f.ID == "" || f.By == "" || f.Why == "" || f.Currency == "" || f.Amount == 0 {
				return app.Usage("--amount, --currency, --id, --by and --why are required (see `%s --help`)", cmd.CommandPath())
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				fund, err := payments.Of(a).Fund(cmd.Context(), f)
				if err != nil {
					return err
				}
				out := printableFund(&fund)
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "fund of %s: %s put into it, %s credited, %s left\n", out.Client,
						money.Text(out.Funded, out.Currency),
						money.Text(out.Credited, out.Currency), money.Text(out.Left, out.Currency))
					return err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.Var((*amountFlag)(&f.Amount), "amount", "the amount to add, in minor units (required)")
	flags.StringVar(&f.Currency, "currency", "", "currency of the amount: three capital letters (required)")
	flags.StringVar(&f.ID, "id", "", "id of this funding, such as a ticket or a budget; stored with the funding (required)")
	addDecision(flags, &f.Decision, "; stored with the funding (required)")
	return cmd
}
