package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

func refundLostCmd() *cobra.Command {
	var o model.LostRefund
	var expect string
	cmd := &cobra.Command{
		Use:   "refund-lost CAMPAIGN --amount MINOR-UNITS --expect DIGEST --by NAME --why TEXT",
		Short: "End and refund a campaign of which Redis has lost data, using only the ledger",
		Long: "Ends a campaign that `hongbao recover --accept-loss` left frozen, or that Redis has lost although\n" +
			"the ledger has paid some of it. Such a campaign can't be closed. Without --amount the command prints\n" +
			"what was funded, what the ledger has paid, what Redis still has, what the sponsor would get back,\n" +
			"and the grants that the topic has and the ledger never paid. It moves no money, and the exit code is\n" +
			"2. With exactly that amount in minor units as --amount, and the printed digest as --expect, the\n" +
			"sponsor gets the money back, once. Then grabs get the answer ended. The ledger stores --by and\n" +
			"--why. The ledger never pays a grant that arrives later: the grant goes to quarantine.\n\n" +
			"The command refuses a campaign while its shard is frozen, while Redis has all of the campaign, and\n" +
			"while grants of it wait: in the stream, as receipts, as dead letters or in quarantine.",
		Example: "  hongbao campaign refund-lost spring-rain\n" +
			"  hongbao campaign refund-lost spring-rain --amount 250 --expect 1c5f00a2b7d4 --by ann --why \"Redis was emptied, no file is left\"",
		Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Campaign = args[0]
			acts := cmd.Flags().Changed("amount")
			if acts && (o.By == "" || o.Why == "") {
				return app.Usage("--amount needs --by and --why: the decider and the reason; both are kept in the ledger (see `%s "+
					"--help`)", cmd.CommandPath())
			}
			return with(cmd, app.Needs{Redis: true, Ledger: true}, func(a *app.App) error {
				var out *campaigns.LostEnding
				var err error
				if acts {
					out, err = campaigns.Of(a).RefundLost(cmd.Context(), o, expect)
				} else {
					out, err = campaigns.Of(a).LostProgress(cmd.Context(), o.Campaign)
				}
				if err != nil {
					return err
				}
				err = printAnswer(cmd, out, func(w io.Writer) error { return writeEnding(w, out) })
				if err == nil && !acts && out.Next != "" {
					err = app.Usage("nothing was moved")
				}
				return err
			})
		},
	}
	cmd.Flags().Var((*amountFlag)(&o.Amount), "amount", "the exact amount of the refund, in minor units")
	cmd.Flags().StringVar(&expect, "expect", "", "the digest that the command printed without --amount")
	addDecision(cmd.Flags(), &o.Decision, "; stored in the ledger")
	return cmd
}

// writeEnding prints the state of a campaign of which Redis has lost data, and the next command.
func writeEnding(w io.Writer, e *campaigns.LostEnding) error {
	var b strings.Builder
	fmt.Fprintf(&b, "campaign %s: funded %s, %s\nthe ledger has paid %s, %s\n", e.Campaign, plural.Of(e.Packets, "packet"),
		money.Text(e.Funded, e.Currency),
		plural.Of(e.Paid, "packet"), money.Text(e.PaidAmount, e.Currency))
	if e.Refund != nil {
		fmt.Fprintf(&b, "refunded %s: %s, %s, to sponsor %s", e.Refund.Created.Format("2006-01-02T15:04:05Z07:00"),
			plural.Of(e.Refund.Packets, "packet"),
			money.Text(e.Refund.Amount, e.Currency), e.Sponsor)
		if e.Refund.By != "" {
			fmt.Fprintf(&b, ", by %s: %s", e.Refund.By, e.Refund.Why)
		}
		b.WriteString("\n")
	}
	switch r := e.Redis; {
	case r.State == "":
		b.WriteString("Redis has nothing of it\n")
	case r.Packets == 0:
		fmt.Fprintf(&b, "Redis has only a stub of it, in state %s\n", r.State)
	default:
		fmt.Fprintf(&b, "Redis says that it is %s, with %s granted, %s\n", r.State, plural.Of(r.Granted, "packet"),
			money.Text(r.GrantedAmount, e.Currency))
	}
	for _, step := range e.Waiting.Steps(e.Campaign) {
		fmt.Fprintf(&b, "first: %s\n", step)
	}
	if e.Refund == nil {
		fmt.Fprintf(&b, "would be refunded: %s, %s, to sponsor %s\n", plural.Of(e.Left, "packet"),
			money.Text(e.LeftAmount, e.Currency), e.Sponsor)
	}
	if u := e.Unpaid; u != nil {
		fmt.Fprintf(&b, "among them %s, %s, that the topic announced and the ledger never paid: their users may know that "+
			"they won. --json lists them\n", plural.Of(u.Grants, "packet"), money.Text(u.Amount, e.Currency))
	}
	if e.Next != "" {
		fmt.Fprintf(&b, "next: %s\n", e.Next)
	} else {
		fmt.Fprintf(&b, "next: hongbao campaign reveal %s\n", e.Campaign)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
