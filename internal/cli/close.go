package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

func closeCmd() *cobra.Command {
	early := false
	cmd := &cobra.Command{
		Use: "close CAMPAIGN", Short: "End a campaign permanently: grabs get the answer ended from now on",
		Long: "Ends a campaign permanently. From now on grabs answer ended, and a repeated grab still gets its\n" +
			"receipt. If the campaign's window is not over, the command needs --early, so that a mistyped ID ends\n" +
			"nothing. The command moves no money: `hongbao campaign refund` does that. A second run changes\n" +
			"nothing and prints the same answer.\n\n" +
			"Decide about withheld packets before: `hongbao hole list CAMPAIGN` lists them. After the close no one\n" +
			"can grant them.",
		Example: "  hongbao campaign close spring-rain\n  hongbao campaign close spring-rain --early", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				return printEnding(cmd)(o.CloseCampaign(cmd.Context(), ops.CampaignClose{Campaign: args[0], Early: early}))
			})
		},
	}
	cmd.Flags().BoolVar(&early, "early", false, "close the campaign before the end of its window")
	return cmd
}

func cancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel CAMPAIGN", Short: "End a campaign that was never loaded, and give all of its money back to the sponsor",
		Long: "Ends a campaign that was created by mistake. All of its money, top-ups included, goes back to its\n" +
			"sponsor. The campaign can't be loaded afterwards. The command refuses a campaign once `hongbao\n" +
			"campaign load` has begun, even if the load was interrupted. In that case finish the load, then close\n" +
			"and refund the campaign. A second run changes nothing and prints the same answer.",
		Example: "  hongbao campaign cancel typo-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				return printEnding(cmd)(o.CancelCampaign(cmd.Context(), args[0]))
			})
		},
	}
}

func writeClosing(w io.Writer, e *campaigns.Ending) error {
	var b strings.Builder
	zone := zoneOf(e.TimeZone)
	if c := e.Closed; c != nil {
		fmt.Fprintf(&b, "campaign %s was closed at %s by event %s\ngranted %s, %s\nleft %s, %s\n", e.Campaign,
			bothTimes(c.Time, zone), c.Event, plural.Of(c.Granted, "packet"), money.Text(c.GrantedAmount, e.Currency),
			plural.Of(c.Left, "packet"), money.Text(c.LeftAmount, e.Currency))
	}
	for _, p := range e.Places {
		fmt.Fprintf(&b, "  shard %d: event %s, granted %d, left %d\n", p.Shard, p.Event, p.Granted, p.Left)
	}
	switch r := e.Refunded; {
	case r != nil:
		fmt.Fprintf(&b, "campaign %s was refunded at %s: %s, %s, to sponsor %s\n", e.Campaign,
			bothTimes(r.Time, zone), plural.Of(r.Packets, "packet"),
			money.Text(e.Amount, e.Currency), r.Sponsor)
	case e.Settling && len(e.Places) == 0:
		fmt.Fprintf(&b, "settling: group %s has finished events up to %d\n", configs.SinkBalance, *e.Finished)
	case e.Settling:
		for _, p := range e.Places {
			fmt.Fprintf(&b, "settling: group %s has finished events of shard %d up to %d\n", configs.SinkBalance, p.Shard,
				p.Finished)
		}
	case e.Missing != nil && *e.Missing > 0:
		fmt.Fprintf(&b, "%s %s missing in the ledger: dead letters, or in quarantine\n", plural.Of(*e.Missing, "grant"),
			plural.Verb(*e.Missing, "is", "are"))
	case e.Missing != nil && *e.Missing < 0:
		fmt.Fprintf(&b, "the ledger has paid %s more than the close recorded\n", plural.Of(-*e.Missing, "grant"))
	}
	_, err := fmt.Fprintf(w, "%snext: %s\n", b.String(), e.Next)
	return err
}

// printEnding returns a function that prints how far a campaign has been closed or refunded.
func printEnding(cmd *cobra.Command) func(*campaigns.Ending, error) error {
	return func(e *campaigns.Ending, err error) error {
		if err != nil {
			return err
		}
		return printAnswer(cmd, e, func(w io.Writer) error { return writeClosing(w, e) })
	}
}

func refundCmd() *cobra.Command {
	var in ops.CampaignRefund
	cmd := &cobra.Command{
		Use: "refund CAMPAIGN --amount MINOR-UNITS", Short: "Refund the amount that no user got to the sponsor, once",
		Long: "Refunds a closed campaign: the sponsor gets back the amount that was funded and not granted. The\n" +
			"refund happens once, even if the command is killed or runs several times.\n" +
			"--amount must be exactly that amount in minor units. Without --amount the command moves no money,\n" +
			"prints the amount, and the exit code is 2. With a wrong amount the exit code is 1. Until the ledger\n" +
			"has every grant up to the close, the command moves no money and the exit code is 4 (settling). Run\n" +
			"the command again, or give --wait.",
		Example: "  hongbao campaign refund spring-rain\n  hongbao campaign refund spring-rain --amount 250 --wait 1m",
		Args:    oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Campaign = args[0]
			if err := in.Check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				if cmd.Flags().Changed("amount") {
					return printEnding(cmd)(o.RefundCampaign(cmd.Context(), in))
				}
				e, err := o.CampaignEnding(cmd.Context(), in.Campaign)
				if err := printEnding(cmd)(e, err); err != nil || e.Refunded != nil {
					return err
				}
				return app.Usage("nothing was moved: if this is the right campaign, run it again with --amount %d", e.Amount)
			})
		},
	}
	cmd.Flags().Var((*amountFlag)(&in.Amount), "amount", "the exact amount of the refund, in minor units")
	cmd.Flags().Int64Var(&in.Missing, "missing", 0,
		"the exact number of grants that the ledger lacks and that a person decided not to pay")
	cmd.Flags().DurationVar(&in.Wait, "wait", 0, "the longest wait until the ledger has every grant")
	return cmd
}
