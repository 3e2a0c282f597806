package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

func quarantineCmd() *cobra.Command {
	return family("quarantine", "Show grants that contradict the ledger, and decide about them",
		"The ledger did not pay a grant in quarantine: the grant contradicts the ledger, the plan or the funding. docs/ledger.md\n"+
			"explains each reason. A person decides once, and the ledger keeps the person and the reason.",
		quarantineListCmd(), quarantineShowCmd(), dangerous(quarantineResolveCmd()), dangerous(quarantineCampaignCmd()))
}

func quarantineListCmd() *cobra.Command {
	in := ops.QuarantineList{Limit: 50}
	cmd := &cobra.Command{
		Use: "list", Short: "List the grants that wait for a decision",
		Example: "  hongbao quarantine list\n  hongbao quarantine list --all --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := in.Check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				page, err := o.ListQuarantine(cmd.Context(), in)
				if err != nil {
					return err
				}
				return printAnswer(cmd, page, func(w io.Writer) error { return writeQuarantine(w, page.Grants, page.Next) })
			})
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&in.After, "after", 0, "continue after the grant with this number in the quarantine")
	flags.IntVarP(&in.Limit, "limit", "n", in.Limit, "the most grants on a page")
	flags.BoolVar(&in.All, "all", false, "also list decided grants")
	return cmd
}

func writeQuarantine(w io.Writer, list []payments.Quarantined, next *int64) error {
	t := newColumns(w)
	fmt.Fprintln(t, "ID\tREASON\tCAMPAIGN\tPACKET\tCAME\tLEDGER HAS\tDECISION")
	side := func(v *payments.Version, currency string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%s: %s to %s", v.Event, money.Text(v.Amount, currency), v.User)
	}
	for i := range list {
		q := &list[i]
		decision := "waits"
		if q.Resolved != nil {
			decision = fmt.Sprintf("%s: %.120q", q.ResolvedBy, q.Resolution)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", q.ID, q.Reason, q.Campaign, q.Packet, side(q.Came, q.Currency),
			side(q.Ledger, q.Currency),
			decision)
	}
	if next != nil {
		fmt.Fprintf(t, "next: --after %d\n", *next)
	}
	return t.Flush()
}

func quarantineID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, app.Usage("ID %.40q: want the number that `hongbao quarantine list` prints", text)
	}
	return id, nil
}

func quarantineShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Print a grant in quarantine as JSON, with the ledger's grant of the same packet",
		Example: "  hongbao quarantine show 7", Args: exactly(1, "one ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := quarantineID(args[0])
			if err != nil {
				return err
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				q, err := o.ShowQuarantined(cmd.Context(), id)
				if err != nil {
					return err
				}
				return printJSON(cmd, q)
			})
		},
	}
}

func quarantineResolveCmd() *cobra.Command {
	var in ops.Decide
	pay, void := false, false
	cmd := &cobra.Command{
		Use: "resolve ID", Short: "Decide about a grant in quarantine: pay it from the reserve, or void it",
		Long: "Decides about the grant, once, and prints it. --pay moves the amount from the reserve's account to\n" +
			"the user's, in the same transaction as the decision; a repeat of the command moves no money. --pay\n" +
			"pays no user who was already paid for the packet, and never more than the packet's planned amount.\n" +
			"If the ledger can still settle the grant, replay the grant instead; docs/dead-letters.md says how, also\n" +
			"after a campaign was disowned by mistake. With settlement.kind=remote, --pay moves money in the ledger\n" +
			"only, not at the remote. First ask the owners of the remote whether the user was paid.",
		Example: "  hongbao quarantine resolve 7 --pay --by ann --why \"Redis dealt the packet twice\"\n" +
			"  hongbao quarantine resolve 8 --void --by ann --why \"forged\"",
		Args: exactly(1, "one ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.ID, err = quarantineID(args[0]); err != nil {
				return err
			}
			if pay == void {
				return app.Usage("give either --pay or --void (see `%s --help`)", cmd.CommandPath())
			}
			if err := checkDecision(cmd, &stream.Decision{By: in.By, Why: in.Why}); err != nil {
				return err
			}
			if in.Decision = "void"; pay {
				in.Decision = "pay"
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				q, err := o.DecideQuarantined(cmd.Context(), in)
				if err != nil {
					return err
				}
				return printJSON(cmd, q)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&pay, "pay", false, "pay the grant's amount to its user from the reserve")
	flags.BoolVar(&void, "void", false, "do not pay the grant")
	addBy(flags, &in.By, &in.Why, "; stored with the grant (required)")
	return cmd
}

func quarantineCampaignCmd() *cobra.Command {
	var by stream.Decision
	cmd := &cobra.Command{
		Use: "campaign CAMPAIGN", Short: "Put the waiting grants of a campaign into quarantine, because the ledger will never have the campaign",
		Long: "If the ledger does not have a campaign, the campaign's grants wait without using up an attempt, and\n" +
			"workers raise an alarm: the ledger may be the wrong one, or an older copy. This command records,\n" +
			"permanently, that the campaign will never be in the ledger. The ledger stores --by and --why.",
		Example: "  hongbao quarantine campaign winter-rain --by ann --why \"its ledger burnt\"", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(cmd, &by); err != nil {
				return err
			}
			return with(cmd, app.Needs{Ledger: true}, func(a *app.App) error {
				if err := payments.Of(a).Disown(cmd.Context(), args[0], by); err != nil {
					return err
				}
				out := struct {
					Campaign string `json:"campaign"`
					stream.Decision
				}{args[0], by}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "the grants of campaign %s go to quarantine from now on\n", args[0])
					return err
				})
			})
		},
	}
	addDecision(cmd.Flags(), &by, "; stored in the ledger (required)")
	return cmd
}
