package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/replay"
)

func quarantineCmd() *cobra.Command {
	return family("quarantine", "Look at grants that contradict the ledger, and decide about them",
		"A grant in quarantine was not paid by the ledger: it contradicts the ledger, the plan or the funding. docs/ledger.md tells what each\n"+
			"reason means. A person decides, once, and the ledger keeps who and why.",
		quarantineListCmd(), quarantineShowCmd(), quarantineResolveCmd(), quarantineCampaignCmd())
}

// version is one side of a contradiction.
type version struct {
	Event     string         `json:"event"`
	User      string         `json:"user"`
	Amount    hongbao.Amount `json:"amount"`
	Epoch     int64          `json:"epoch"`
	RequestID string         `json:"request_id,omitempty"`
	Time      time.Time      `json:"time"`
}

func versionOf(g *hongbao.Grant) *version {
	if g == nil {
		return nil
	}
	return &version{g.EventID(), g.User, g.Amount, g.Epoch, g.RequestID, g.Time}
}

// quarantined is a grant in quarantine as it is printed.
type quarantined struct {
	ID       int64         `json:"id"`
	Reason   ledger.Reason `json:"reason"`
	Campaign string        `json:"campaign"`
	Packet   int64         `json:"packet"`
	Currency string        `json:"currency,omitempty"` // of the amounts; empty if the ledger does not have the campaign
	Came     *version      `json:"came"`
	// Ledger is what the ledger had of the packet when the grant came; null if it had nothing.
	Ledger     *version   `json:"ledger"`
	Created    time.Time  `json:"created"`
	Resolved   *time.Time `json:"resolved"`
	ResolvedBy string     `json:"resolved_by,omitempty"`
	Resolution string     `json:"resolution,omitempty"`
}

func printable(q *ledger.Quarantined, currency string) quarantined {
	out := quarantined{
		ID: q.ID, Reason: q.Reason, Campaign: q.Grant.Campaign, Packet: q.Grant.Packet, Currency: currency, Came: versionOf(&q.Grant), Ledger: versionOf(q.Has),
		Created: q.Created, ResolvedBy: q.ResolvedBy, Resolution: q.Resolution,
	}
	if !q.Resolved.IsZero() {
		out.Resolved = &q.Resolved
	}
	return out
}

// quarantinePage is a page of the list.
type quarantinePage struct {
	Grants []quarantined `json:"grants"`
	// Next goes to --after for the next page; 0 if there is none.
	Next int64 `json:"next"`
}

func quarantineListCmd() *cobra.Command {
	after, limit, all := int64(0), 50, false
	cmd := &cobra.Command{
		Use: "list", Short: "List the grants that wait for a decision",
		Example: "  hongbao quarantine list\n  hongbao quarantine list --all --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > replay.MaxListed || after < 0 {
				return usage("--limit %d --after %d: want 1 to %d letters after number 0 or above", limit, after, replay.MaxListed)
			}
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				read := d.ledger.Quarantine
				if all {
					read = d.ledger.QuarantineAll
				}
				list, err := read(cmd.Context(), after, limit)
				if err != nil {
					return err
				}
				out, c := make([]quarantined, len(list)), newCurrencies(d.ledgerCurrency)
				for i := range list {
					out[i] = printable(&list[i], c.of(cmd.Context(), list[i].Grant.Campaign))
				}
				answer := quarantinePage{Grants: out}
				if len(out) == limit {
					answer.Next = out[limit-1].ID
				}
				return printAnswer(cmd, answer, func(w io.Writer) error { return writeQuarantine(w, out, answer.Next) })
			})
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&after, "after", 0, "go on after this number")
	flags.IntVar(&limit, "limit", limit, "grants on a page")
	flags.BoolVar(&all, "all", false, "those that were decided, too")
	return cmd
}

func writeQuarantine(w io.Writer, list []quarantined, next int64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tREASON\tCAMPAIGN\tPACKET\tCAME\tLEDGER HAS\tDECISION")
	side := func(v *version, currency string) string {
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
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", q.ID, q.Reason, q.Campaign, q.Packet, side(q.Came, q.Currency), side(q.Ledger, q.Currency),
			decision)
	}
	if next > 0 {
		fmt.Fprintf(t, "next: --after %d\n", next)
	}
	return t.Flush()
}

func quarantineID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usage("ID %.40q: want the number that `hongbao quarantine list` prints", text)
	}
	return id, nil
}

func quarantineShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Print a grant in quarantine as JSON: what came, and what the ledger had",
		Example: "  hongbao quarantine show 7", Args: exactly(1, "one ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := quarantineID(args[0])
			if err != nil {
				return err
			}
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				q, found, err := d.ledger.Quarantined(cmd.Context(), id)
				if err == nil && !found {
					err = fmt.Errorf("there is no quarantine %d; `hongbao quarantine list --all` shows those that there are", id)
				}
				if err != nil {
					return err
				}
				return printJSON(cmd, printable(&q, d.ledgerCurrency(cmd.Context(), q.Grant.Campaign)))
			})
		},
	}
}

func quarantineResolveCmd() *cobra.Command {
	var decision ledger.Decision
	void := false
	cmd := &cobra.Command{
		Use: "resolve ID", Short: "Decide about a grant in quarantine: pay it from the reserve, or void it",
		Long: "Decides once, and prints the decided grant. --pay moves the amount from the reserve's account to the user's, in the same\n" +
			"transaction as the decision; the same command again moves nothing. Nobody is paid who was paid that packet before, and nobody\n" +
			"more than the plan has for it. Grants that may still be settled are replayed instead.\n" +
			"With settlement.kind=remote --pay moves money in the ledger only, not at the remote; ask there first.",
		Example: "  hongbao quarantine resolve 7 --pay --by ann --why \"Redis dealt the packet twice\"\n" +
			"  hongbao quarantine resolve 8 --void --by ann --why \"forged\"",
		Args: exactly(1, "one ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if decision.ID, err = quarantineID(args[0]); err != nil {
				return err
			}
			if decision.Pay == void {
				return usage("say either --pay or --void (see `%s --help`)", cmd.CommandPath())
			}
			if decision.By == "" || decision.Why == "" {
				return usage("--by and --why are required: who decides, and why (see `%s --help`)", cmd.CommandPath())
			}
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				plans, err := d.plans()
				if err != nil {
					return err
				}
				q, err := d.ledger.Decide(cmd.Context(), decision, plans)
				switch {
				case errors.Is(err, ledger.ErrNotInQuarantine):
					return fmt.Errorf("%w: `hongbao quarantine list` shows them", err)
				case hongbao.ClassOf(err) == hongbao.Unknown && err != nil:
					return fmt.Errorf("%w; run the same command again, it pays once", err)
				case err != nil:
					return err
				}
				return printJSON(cmd, printable(&q, d.ledgerCurrency(cmd.Context(), q.Grant.Campaign)))
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&decision.Pay, "pay", false, "pay the grant's amount to its user from the reserve")
	flags.BoolVar(&void, "void", false, "the grant is not to be paid")
	flags.StringVar(&decision.By, "by", "", "who decides; kept with the grant (required)")
	flags.StringVar(&decision.Why, "why", "", "why; kept with the grant (required)")
	return cmd
}

func quarantineCampaignCmd() *cobra.Command {
	by, why := "", ""
	cmd := &cobra.Command{
		Use: "campaign ID", Short: "Send the grants of a campaign that the ledger will never have to quarantine; else they wait",
		Long: "Grants of a campaign that the ledger does not have wait, without an attempt and with an alarm: it may be the wrong ledger, or an\n" +
			"older copy of it. This says, once and for all, that the campaign will never be there. Who and why are kept.",
		Example: "  hongbao quarantine campaign winter-rain --by ann --why \"its ledger burnt\"", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == "" || why == "" {
				return usage("--by and --why are required: who decides, and why (see `%s --help`)", cmd.CommandPath())
			}
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				if err := d.ledger.Disown(cmd.Context(), args[0], by, why); err != nil {
					return err
				}
				out := struct {
					Campaign string `json:"campaign"`
					By       string `json:"by"`
					Why      string `json:"why"`
				}{args[0], by, why}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "the grants of campaign %s go to quarantine from now on\n", args[0])
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "who decides; kept (required)")
	cmd.Flags().StringVar(&why, "why", "", "why; kept (required)")
	return cmd
}
