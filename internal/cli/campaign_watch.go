package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func campaignWatchCmd() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "watch CAMPAIGN", Short: "Watch a campaign: granted, paid, and how far the sinks are, until Ctrl-C",
		Long: "Shows a campaign in place on a terminal, and else prints a line for each change, with --json a document.\n" +
			"It goes on while a server is down. Ctrl-C ends it with a last line and exit code 0. NO_COLOR or\n" +
			"CLICOLOR=0 turns the colours off. It only reads.",
		Example: "  hongbao campaign watch spring-rain\n  hongbao campaign watch spring-rain --interval 10s",
		Args:    oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkInterval(every); err != nil {
				return err
			}
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				var before watchedCampaign
				return newWatcher(cmd, every).run(cmd.Context(), func(ctx context.Context) (reading, error) {
					now, err := readCampaign(ctx, o, args[0], &before)
					return now, err
				})
			})
		},
	}
	addInterval(cmd, &every)
	return cmd
}

// watchedCampaign is a reading of a campaign.
type watchedCampaign struct {
	Time     time.Time      `json:"time"`
	Campaign string         `json:"campaign"`
	State    string         `json:"state"`
	Currency string         `json:"currency,omitempty"`
	Packets  int64          `json:"packets"`
	Granted  int64          `json:"granted"`
	Funded   hongbao.Amount `json:"funded_amount"`
	Won      hongbao.Amount `json:"granted_amount"`
	Paid     hongbao.Amount `json:"paid_amount"`
	// Rate is the number of grants a second since the last reading; nil at the first.
	Rate  *float64      `json:"grants_per_second"`
	Sinks []watchedSink `json:"sinks"`

	spec hongbao.Campaign
}

type watchedSink struct {
	Sink    string               `json:"sink"`
	State   deliveries.SinkState `json:"state"`
	Waiting int64                `json:"waiting"`
	Oldest  *float64             `json:"oldest_seconds"`
	Dead    int64                `json:"dead_letters"`
}

// readCampaign reads a campaign, and replaces before by it.
func readCampaign(ctx context.Context, o ops.Operations, id string, before *watchedCampaign) (reading, error) {
	c, err := o.ShowCampaign(ctx, id)
	if err != nil {
		return nil, err
	}
	sinks, err := o.ListSinks(ctx)
	if err != nil {
		return nil, err
	}
	now := watchCampaign(&c, sinks, before, time.Now().UTC())
	*before = now
	return &now, nil
}

func watchCampaign(c *campaigns.Shown, sinks *deliveries.Status, before *watchedCampaign, now time.Time) watchedCampaign {
	w := watchedCampaign{Time: now, Campaign: c.Spec.ID, State: stateOf(c, now), Currency: c.Spec.Currency, Packets: c.Ledger.Packets,
		Funded: c.Ledger.Funded, Won: c.Ledger.Granted, Paid: c.Ledger.Granted, Sinks: []watchedSink{}, spec: c.Spec}
	if r := c.Redis; r != nil {
		w.Granted, w.Won = r.Granted, r.GrantedAmount
		if past := now.Sub(before.Time).Seconds(); !before.Time.IsZero() && past > 0 {
			rate := max(float64(w.Granted-before.Granted)/past, 0)
			w.Rate = &rate
		}
	}
	for i := range sinks.Sinks {
		s := &sinks.Sinks[i]
		w.Sinks = append(w.Sinks, watchedSink{s.Sink, s.State, s.Waiting, s.Oldest, s.Dead})
	}
	return w
}

// stateOf returns the state of a campaign in words. The window counts by the clock of this machine.
func stateOf(c *campaigns.Shown, now time.Time) string {
	switch {
	case c.Ledger.State == model.MoneyRefunded:
		return "refunded"
	case c.Redis == nil:
		return "not loaded"
	case c.Redis.State != "open":
		return c.Redis.State
	}
	view := model.PublicView{State: c.Redis.State, From: c.Spec.From, To: c.Spec.To, SoldOut: c.Redis.Left == 0, Now: now}
	return strings.ReplaceAll(view.Status(), "_", " ")
}

// stateStyle returns the style of a campaign's state.
func stateStyle(state string) style {
	switch state {
	case "open":
		return good
	case "paused", "loading", "not loaded":
		return warn
	case "frozen", "missing", "unread":
		return bad
	}
	return faint
}

// sinkStyle returns the style of a sink's state.
func sinkStyle(s deliveries.SinkState) style {
	switch s {
	case deliveries.SinkWorking:
		return good
	case deliveries.SinkPaused:
		return warn
	default:
		return bad
	}
}

func (w *watchedCampaign) zone() *time.Location { return zoneOf(w.spec.TimeZone) }

// zoneOf returns a time zone, or UTC if this machine does not know it.
func zoneOf(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

func (w *watchedCampaign) perSecond() string {
	if w.Rate == nil {
		return ""
	}
	return money.Count(int64(*w.Rate+0.5)) + " a second"
}

func (w *watchedCampaign) line() string {
	parts := []string{fmt.Sprintf("%s %s: %s of %s granted", w.Campaign, w.State, money.Count(w.Granted), money.Count(w.Packets))}
	if w.Rate != nil {
		parts[0] += " (" + w.perSecond() + ")"
	}
	if w.Currency != "" {
		parts = append(parts, money.Text(w.Paid, w.Currency)+" paid")
	}
	for _, s := range w.Sinks {
		text := fmt.Sprintf("%s %s, %s waiting", s.Sink, strings.ReplaceAll(string(s.State), "_", " "), money.Count(s.Waiting))
		if s.Dead > 0 {
			text += fmt.Sprintf(", %s dead", money.Count(s.Dead))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// barLength is the number of characters of a full bar.
const barLength = 40

func (w *watchedCampaign) screen(out io.Writer) error {
	t := newColumns(out)
	fmt.Fprintf(t, "%s\t%s\t%s\n", w.Campaign, styled(stateStyle(w.State), w.State), w.spec.Name)
	writeWindow(t, &w.spec)
	fmt.Fprintln(t)
	share := float64(w.Granted) / float64(max(w.Packets, 1))
	full := min(int(share*barLength), barLength)
	fmt.Fprintf(t, "granted\t%s of %s\t%.0f%%\t%s\n", money.Count(w.Granted), money.Count(w.Packets), 100*share, w.perSecond())
	if w.Currency != "" {
		fmt.Fprintf(t, "won\t%s of %s\n", money.Text(w.Won, w.Currency), money.Text(w.Funded, w.Currency))
		fmt.Fprintf(t, "paid\t%s\n", money.Text(w.Paid, w.Currency))
	}
	fmt.Fprintf(t, "%s\n\n", styled(good, strings.Repeat("█", full)+strings.Repeat("░", barLength-full)))
	fmt.Fprintln(t, "SINK\tSTATE\tWAITING\tSINCE\tDEAD")
	for _, s := range w.Sinks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", s.Sink, styled(sinkStyle(s.State), strings.ReplaceAll(string(s.State), "_", " ")),
			money.Count(s.Waiting), seconds(s.Oldest), styledIf(s.Dead > 0, bad, money.Count(s.Dead)))
	}
	return t.Flush()
}
