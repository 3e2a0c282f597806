package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

func receiptsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "receipts CAMPAIGN USER", Short: "Print a user's receipts in a campaign: from Redis, or from the ledger once the campaign has left Redis",
		Example: "  hongbao receipts spring-rain u1\n  hongbao receipts spring-rain u1 --json",
		Args:    exactly(2, "a CAMPAIGN and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCampaigns(args[0]); err != nil {
				return err
			}
			if err := hongbao.CheckID(args[1]); err != nil {
				return app.Usage("user %.80q: %w", args[1], err)
			}
			return with(cmd, app.Needs{Redis: true}, func(a *app.App) error {
				out, err := find.Of(a).Receipts(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeReceipts(cmd, w, &out) })
			})
		},
	}
}

func writeReceipts(cmd *cobra.Command, w io.Writer, out *model.Receipts) error {
	if out.Incomplete {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"campaign %s is not in Redis and not refunded: the ledger may not have all receipts; see `hongbao campaign show %s`\n",
			out.Campaign, out.Campaign)
	}
	for _, r := range out.Receipts {
		if err := writeReceipt(w, &r, out.Currency); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s of user %s in campaign %s (from %s)\n", plural.Of(len(out.Receipts), "receipt"), out.User,
		out.Campaign, out.Source)
	return err
}

func writeReceipt(w io.Writer, r *hongbao.Receipt, currency string) error {
	code := ""
	if r.Code != "" {
		code = ", code " + r.Code
	}
	_, err := fmt.Fprintf(w, "packet %d, %s%s, event %s, granted %s, request id %s\n", r.Packet,
		money.Text(r.Amount, currency), code, r.EventID(),
		r.Time.UTC().Format(time.RFC3339Nano), r.RequestID)
	return err
}
