package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func closeCmd() *cobra.Command {
	early := false
	cmd := &cobra.Command{
		Use: "close CAMPAIGN", Short: "End a campaign permanently: grabs answer ended from now on",
		Long: "Ends a campaign permanently: from now on grabs answer ended, and a repeated grab still gets its receipt. A " +
			"campaign whose window is\n" +
			"open is refused without --early, so that a mistyped ID ends nothing. No money moves: `hongbao campaign refund` " +
			"does that.\n" +
			"Run again it prints the same.",
		Example: "  hongbao campaign close spring-rain\n  hongbao campaign close spring-rain --early", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				return printEnding(cmd)(o.CloseCampaign(cmd.Context(), ops.CampaignClose{Campaign: args[0], Early: early}))
			})
		},
	}
	cmd.Flags().BoolVar(&early, "early", false, "end it before its window is over")
	return cmd
}

func cancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel CAMPAIGN", Short: "End a campaign that was never loaded: all of its money goes back to the sponsor",
		Long: "Ends a campaign that was created by mistake: all of its money, top-ups included, goes back to its sponsor, and " +
			"it can't be loaded\n" +
			"any more. It is refused once `hongbao campaign load` has begun, even if that was interrupted: finish the load, then " +
			"close and\nrefund the campaign. Run again it prints the same.",
		Example: "  hongbao campaign cancel typo-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				return printEnding(cmd)(o.CancelCampaign(cmd.Context(), args[0]))
			})
		},
	}
}

func writeClosing(w io.Writer, e *app.Ending) error {
	var b strings.Builder
	if c := e.Closed; c != nil {
		fmt.Fprintf(&b, "campaign %s was closed %s by event %s\ngranted %d packets, %s\nleft %d packets, %s\n", e.Campaign,
			c.Time.Format(time.RFC3339), c.Event, c.Granted, money.Text(c.GrantedAmount, e.Currency), c.Left,
			money.Text(c.LeftAmount, e.Currency))
	}
	for _, p := range e.Places {
		fmt.Fprintf(&b, "  shard %d: event %s, granted %d, left %d\n", p.Shard, p.Event, p.Granted, p.Left)
	}
	switch r := e.Refunded; {
	case r != nil:
		fmt.Fprintf(&b, "campaign %s was refunded %s: %d packets, %s, to sponsor %s\n", e.Campaign,
			r.Time.Format(time.RFC3339), r.Packets,
			money.Text(e.Amount, e.Currency), r.Sponsor)
	case e.Settling && len(e.Places) == 0:
		fmt.Fprintf(&b, "settling: group %s has finished events up to %d\n", configs.SinkBalance, *e.Finished)
	case e.Settling:
		for _, p := range e.Places {
			fmt.Fprintf(&b, "settling: group %s has finished events of shard %d up to %d\n", configs.SinkBalance, p.Shard,
				p.Finished)
		}
	case e.Missing != nil && *e.Missing > 0:
		fmt.Fprintf(&b, "%d grants are missing in the ledger: dead letters, or in quarantine\n", *e.Missing)
	case e.Missing != nil && *e.Missing < 0:
		fmt.Fprintf(&b, "the ledger has paid %d grants more than the close tells of\n", -*e.Missing)
	}
	_, err := fmt.Fprintf(w, "%snext: %s\n", b.String(), e.Next)
	return err
}

// printEnding returns a function that prints the state of a campaign's end.
func printEnding(cmd *cobra.Command) func(*app.Ending, error) error {
	return func(e *app.Ending, err error) error {
		if err != nil {
			return err
		}
		return printAnswer(cmd, e, func(w io.Writer) error { return writeClosing(w, e) })
	}
}

func refundCmd() *cobra.Command {
	var in ops.CampaignRefund
	cmd := &cobra.Command{
		Use: "refund CAMPAIGN --amount MINOR-UNITS", Short: "Give what nobody got back to the sponsor, once",
		Long: "Posts the refund of a closed campaign: what was funded and not granted goes back to its sponsor, once, " +
			"however often this is run\n" +
			"and wherever it is killed. --amount must be exactly that sum in minor units: without it nothing moves, the sum is " +
			"printed and the\n" +
			"exit code is 2; with another one the exit code is 1. While the ledger does not hold every grant up to the close, " +
			"nothing moves and\n" +
			"the exit code is 4 (settling): run it again, or give --wait.",
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
	cmd.Flags().Var((*amountFlag)(&in.Amount), "amount", "the sum to be refunded, in minor units; it must be exactly right")
	cmd.Flags().Int64Var(&in.Missing, "missing", 0,
		"refund although this many grants, exactly, are missing in the ledger and were decided not to be paid")
	cmd.Flags().DurationVar(&in.Wait, "wait", 0, "wait this long at most until the ledger holds every grant")
	return cmd
}
