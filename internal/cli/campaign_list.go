package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func listCmd() *cobra.Command {
	var statuses []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the campaigns of the ledger: their status, how many packets users got, what was paid",
		Long: "Lists the campaigns in the order of their ids. PAID is what the ledger has booked for users; coupons have\n" +
			"none. WINDOW says when a campaign opens or ends. On a terminal names are cut where the line ends.\n" +
			"--json and `hongbao campaign show` have everything else.",
		Example: "  hongbao campaign list\n  hongbao campaign list --status open,paused",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range statuses {
				if !slices.Contains(model.CampaignStatuses(), s) {
					return app.Usage("--status %.40q: want %s", s, strings.Join(model.CampaignStatuses(), ", "))
				}
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				list, err := o.ListCampaigns(cmd.Context())
				if err != nil {
					return err
				}
				if len(statuses) > 0 {
					list = slices.DeleteFunc(list, func(c model.Campaign) bool { return !slices.Contains(statuses, c.Status) })
				}
				out := struct {
					Campaigns []model.Campaign `json:"campaigns"`
				}{list}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeCampaigns(w, list, time.Now()) })
			})
		},
	}
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only campaigns with one of these statuses, such as open,paused")
	return cmd
}

func writeCampaigns(w io.Writer, list []model.Campaign, now time.Time) error {
	t := newColumns(w)
	t.cut = true
	fmt.Fprintln(t, "ID\tSTATUS\tGRANTED\tPAID\tWINDOW\tNAME")
	for i := range list {
		c := &list[i]
		paid := "-"
		if c.Currency != "" {
			paid = money.Text(c.Paid, c.Currency)
		}
		fmt.Fprintf(t, "%s\t%s\t%s/%s\t%s\t%s\t%s\n", c.ID, styled(stateStyle(c.Status), c.Status), money.Count(c.Granted),
			money.Count(c.Packets), paid, windowText(c.From, c.To, now), c.Name)
	}
	return t.Flush()
}

// windowText says when a window begins or ends: "opens in 3h", "ends in 59m" or "ended 2d ago".
func windowText(from, to, now time.Time) string {
	switch {
	case now.Before(from):
		return "opens in " + roughly(from.Sub(now))
	case now.Before(to):
		return "ends in " + roughly(to.Sub(now))
	}
	return "ended " + roughly(now.Sub(to)) + " ago"
}

// roughly formats a duration in its largest unit: "2d", "3h", "59m" or "10s".
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
