package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

func showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show CAMPAIGN", Short: "Show a campaign: its window, its packets, its money, its hash, who paused it",
		Long: "Shows a campaign as the ledger and Redis have it. Times are in the campaign's time zone, with UTC below.\n" +
			"--json also prints the specification and the text that the hash covers.",
		Example: "  hongbao campaign show spring-rain\n  hongbao campaign show spring-rain --json", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				out, err := o.ShowCampaign(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeShown(w, &out, time.Now()) })
			})
		},
	}
}

func writeShown(w io.Writer, c *campaigns.Shown, now time.Time) error {
	s, state := &c.Spec, stateOf(c, now)
	t := newColumns(w)
	fmt.Fprintf(t, "%s\t%s\t%s\n", s.ID, styled(stateStyle(state), state), s.Name)
	if err := t.Flush(); err != nil { // a table of its own: the name is no column of what follows
		return err
	}
	if c.Redis != nil && c.Redis.Pause != nil {
		p := c.Redis.Pause
		fmt.Fprintf(t, "paused\tby %s at %s: %s\n", p.By, bothTimes(p.At, zoneOf(s.TimeZone)), cmp.Or(p.Why, "no reason was given"))
	}
	writeWindow(t, s)
	fmt.Fprintf(t, "kind\t%s, durability %s, by %s\n", strings.ReplaceAll(string(s.Kind), "_", " "), s.Durability, s.Sponsor)
	for _, l := range s.Limits {
		fmt.Fprintf(t, "limit\t%s\n", limitText(l))
	}
	if r := c.Redis; r != nil {
		fmt.Fprintf(t, "packets\t%s of %s granted, %s left\n", money.Count(r.Granted), money.Count(r.Packets), money.Count(r.Left))
		for _, p := range r.Places {
			fmt.Fprintf(t, "shard %d\t%s of %s granted, %s left, %s\n", p.Shard, money.Count(p.Granted), money.Count(p.Loaded),
				money.Count(p.Left), p.State)
		}
		for _, f := range r.Sinks {
			fmt.Fprintf(t, "sink %s\t%s done, %s dead\n", f.Sink, money.Count(f.Done), money.Count(f.Dead))
		}
		if a := c.Answers; a != nil && a.Total > 0 {
			fmt.Fprintf(t, "answered\t%s to all servers: %s\n", requests(a.Total), countsIn(a))
		}
	} else {
		fmt.Fprintf(t, "packets\t%s, not in Redis\n", money.Count(c.Ledger.Packets))
	}
	if s.Currency != "" {
		fmt.Fprintf(t, "money\tfunded %s, paid %s, refunded %s\n", money.Text(c.Ledger.Funded, s.Currency),
			money.Text(c.Ledger.Granted, s.Currency), money.Text(c.Ledger.Refunded, s.Currency))
	}
	if s.Codes != nil {
		fmt.Fprintf(t, "codes\t%s of %s stored\n", money.Count(c.Ledger.Codes), money.Count(c.Ledger.Packets))
	}
	fmt.Fprintf(t, "hash\t%s\n", c.Hash)
	for i := range c.TopUps {
		x := &c.TopUps[i]
		fmt.Fprintf(t, "top-up\t%s: %s, %s, by %s: %s\n\thash %s\n", x.ID, money.Count(x.Packets)+" packets",
			money.Text(x.Total, x.Currency), x.By, x.Why, x.Hash)
	}
	return t.Flush()
}

// writeWindow writes the window of a campaign in its time zone, with UTC below.
func writeWindow(w io.Writer, c *hongbao.Campaign) {
	zone := zoneOf(c.TimeZone)
	fmt.Fprintf(w, "window\t%s to %s (%s)\n", c.From.In(zone).Format(time.DateTime), c.To.In(zone).Format(time.DateTime), zone)
	fmt.Fprintf(w, "UTC\t%s to %s\n", c.From.UTC().Format(time.DateTime), c.To.UTC().Format(time.DateTime))
}

// bothTimes formats a time in a campaign's time zone, with UTC beside it.
func bothTimes(t time.Time, zone *time.Location) string {
	return fmt.Sprintf("%s (%s, %s UTC)", t.In(zone).Format(time.DateTime), zone, t.UTC().Format(time.TimeOnly))
}
