package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func topUpCmd() *cobra.Command {
	var in ops.TopUp
	var tiers []string
	cmd := &cobra.Command{
		Use:   "top-up CAMPAIGN --packets N --total MINOR-UNITS --expect MINOR-UNITS --id ORDER --by NAME --why TEXT",
		Short: "Add packets to a campaign that is open, or that opens later, and fund them",
		Long: "Adds packets to a campaign. The packets' money goes from the sponsor to the campaign's pool, and the\n" +
			"command draws a new secret seed for them. It prints the hash that commits to their draw before any\n" +
			"user can grab one of them.\n" +
			"--expect must be the present funding of the campaign, in minor units. Without --expect the command\n" +
			"changes nothing, prints what would happen, and the exit code is 2. With a wrong value the exit code\n" +
			"is 1. A repeat of the same order (--id) changes nothing. If the command was killed, run it again, or\n" +
			"wait until a worker loads the packets. While the packets are being loaded (about 0.3 s and the time\n" +
			"of a load), grabs for them get the answer refilling. A campaign that is split by tiers needs --tier.",
		Example: "  hongbao campaign top-up spring-rain --packets 100 --total 20000\n" +
			"  hongbao campaign top-up spring-rain --packets 100 --total 20000 --expect 100000 --id second-rain --by ann " +
			"--why \"the crowd is large\"",
		Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Campaign, in.Tiers = args[0], strings.Join(tiers, " ")
			acts := cmd.Flags().Changed("expect")
			if acts && (in.ID == "" || in.By == "" || in.Why == "") {
				return app.Usage("--expect needs --id, --by and --why: the order's id, the decider and the reason; all are kept in "+
					"the ledger (see `%s --help`)", cmd.CommandPath())
			}
			if !cmd.Flags().Changed("packets") || !cmd.Flags().Changed("total") {
				return app.Usage("give --packets and --total: how many packets are added, and their sum in minor units (see `%s --help`)",
					cmd.CommandPath())
			}
			check := in.CheckPackets
			if acts {
				check = in.Check
			}
			if err := check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				if acts {
					return topUp(cmd, o, in)
				}
				return tryTopUp(cmd, o, in)
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&in.Packets, "packets", 0, "the number of packets to add")
	f.Var((*amountFlag)(&in.Total), "total", "the sum of the added packets, in minor units")
	f.Var((*amountFlag)(&in.Expect), "expect", "the exact amount that the sponsor has paid in before this order, in minor units")
	f.StringVar(&in.ID, "id", "", "id of the order, which you choose; a repeat with the same id changes nothing")
	f.StringArrayVar(&tiers, "tier", nil, "added packets as AMOUNTxPACKETS, for a campaign that is split by tiers; may be repeated")
	addBy(f, &in.By, &in.Why, "")
	return cmd
}

// topUp adds packets to a campaign. A campaign that is not loaded yet gets them with its load.
func topUp(cmd *cobra.Command, o ops.Operations, in ops.TopUp) error {
	out, err := o.TopUpCampaign(cmd.Context(), in)
	if err != nil {
		return err
	}
	return printAnswer(cmd, out, func(w io.Writer) error {
		_, err := fmt.Fprint(w, out.Text())
		return err
	})
}

// tryTopUp prints what a top-up would do, and changes nothing.
func tryTopUp(cmd *cobra.Command, o ops.Operations, in ops.TopUp) error {
	out, err := o.TryTopUp(cmd.Context(), in)
	if err != nil {
		return err
	}
	before := out.Funded - out.Total
	if err := printAnswer(cmd, out, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "campaign %s is funded with %s\nit would get generation %d: packets %d to %d, %s\n",
			out.Campaign, money.Text(before, out.Currency), out.Generation, out.First, out.First+out.Packets-1,
			money.Text(out.Total, out.Currency))
		return err
	}); err != nil {
		return err
	}
	return app.Usage("nothing was changed: if this is the right campaign, run it again with --expect %d --id ORDER --by NAME "+
		"--why TEXT; ORDER is an id that you choose, and a repeat with it changes nothing", before)
}
