package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

func userCmd() *cobra.Command {
	return family("user", "Show what is stored about a user",
		"Answers an access request: what Redis and the ledger have about one user over all campaigns.", userShowCmd())
}

func userShowCmd() *cobra.Command {
	in := ops.UserQuery{}
	cmd := &cobra.Command{
		Use: "show USER", Short: "Print what Redis and the ledger have about a user, over all campaigns",
		Long: "Prints the user's wins, balances, dead letters, grants in quarantine and pending credits, and the archives\n" +
			"that may name the user. It reads the user's rows of each campaign by an index, and all dead letters. A page\n" +
			"covers --limit campaigns of the ledger, and ends with the value of --after for the next page. Coupon codes\n" +
			"are printed by `hongbao receipts`. The journal records each call, with the hash of the user's id.\n" +
			"docs/privacy.md names the other places: the topic, files, logs, and your own systems.",
		Example: "  hongbao user show u1\n  hongbao user show u1 --limit 10000 --json",
		Args:    exactly(1, "one USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.User = args[0]
			if err := in.Check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				out, err := o.ShowUser(cmd.Context(), in)
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeUser(w, &out) })
			})
		},
	}
	cmd.Flags().StringVar(&in.After, "after", "", "continue after the campaign with this id; the previous page printed it")
	cmd.Flags().IntVarP(&in.Limit, "limit", "n", 100, "the most campaigns that a page covers")
	return cmd
}

func writeUser(w io.Writer, u *find.UserData) error {
	t := newColumns(w)
	fmt.Fprintln(t, "CAMPAIGN\tPACKET\tAMOUNT\tEVENT\tTIME\tREQUEST\tREDIS\tLEDGER")
	for _, x := range u.Wins {
		amount := "-" // a coupon without a value
		if x.Currency != "" {
			amount = money.Text(x.Amount, x.Currency)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%t\t%t\n", x.Campaign, x.Packet, amount, x.Event,
			x.Time.Format(time.RFC3339), x.RequestID, x.Redis, x.Ledger)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range u.Balances {
		fmt.Fprintf(w, "balance: %s\n", money.Text(b.Balance, b.Currency))
	}
	for i := range u.Letters {
		l := &u.Letters[i]
		fmt.Fprintf(w, "dead letter %s: campaign %s, packet %d, %.120q\n", l.ID, l.Campaign(), l.Grant.Packet, l.Reason)
	}
	for _, r := range u.Resolved {
		fmt.Fprintf(w, "dead letter %s: campaign %s, packet %d, %s by %s: %.120q\n", r.Letter, r.Campaign, r.Packet, r.Decision,
			r.By, r.Why)
	}
	for i := range u.Quarantine {
		q := &u.Quarantine[i]
		decision := q.Resolution
		if decision == "" {
			decision = "waits"
		}
		fmt.Fprintf(w, "quarantine %d: campaign %s, packet %d, %s: %.120q\n", q.ID, q.Campaign, q.Packet, q.Reason, decision)
	}
	for _, p := range u.Pending {
		fmt.Fprintf(w, "pending credit: campaign %s, packet %d, worker %s\n", p.Campaign, p.Packet, p.Worker)
	}
	for _, a := range u.Archives {
		fmt.Fprintf(w, "archive of campaign %s, which may name the user: %s\n", a.Campaign, a.File)
	}
	fmt.Fprintf(w, "%s of user %s in %s\n", plural.Of(len(u.Wins), "win"), u.User, plural.Of(u.Campaigns, "campaign"))
	if u.Next != "" {
		fmt.Fprintf(w, "more: --after %s\n", u.Next)
	}
	return nil
}
