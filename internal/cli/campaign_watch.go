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
	"github.com/hongbao-project/hongbao/internal/base/plural"
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
			"Answers are those of all servers: they count requests to `hongbao serve`, not people.\n" +
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
	Rate *float64 `json:"grants_per_second"`
	// Answers are those of all servers; nil if Redis does not have the campaign. AnswersRate is the number of answers a
	// second since the last reading; nil if one of the readings has no answers.
	Answers     *model.Answers `json:"answers"`
	AnswersRate *float64       `json:"answers_per_second"`
	Sinks       []watchedSink  `json:"sinks"`

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
		Funded: c.Ledger.Funded, Won: c.Ledger.Granted, Paid: c.Ledger.Granted, Answers: c.Answers, Sinks: []watchedSink{},
		spec: c.Spec}
	perSecond := func(grown int64) *float64 {
		past := now.Sub(before.Time).Seconds()
		if before.Time.IsZero() || past <= 0 {
			return nil
		}
		return new(max(float64(grown)/past, 0))
	}
	if r := c.Redis; r != nil {
		w.Granted, w.Won = r.Granted, r.GrantedAmount
		w.Rate = perSecond(w.Granted - before.Granted)
	}
	if w.Answers != nil && before.Answers != nil {
		w.AnswersRate = perSecond(w.Answers.Total - before.Answers.Total)
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

// perSecond returns a rate in words, and "" if it is unknown.
func perSecond(rate *float64) string {
	if rate == nil {
		return ""
	}
	return money.Count(int64(*rate+0.5)) + " a second"
}

func (w *watchedCampaign) news() string { return w.line() }

func (w *watchedCampaign) line() string {
	parts := []string{fmt.Sprintf("%s %s: %s of %s granted", w.Campaign, w.State, money.Count(w.Granted), money.Count(w.Packets))}
	if w.Rate != nil {
		parts[0] += " (" + perSecond(w.Rate) + ")"
	}
	if a := w.Answers; a != nil && a.Total > 0 {
		text := requests(a.Total) + " answered"
		if w.AnswersRate != nil {
			text += " (" + perSecond(w.AnswersRate) + ")"
		}
		parts = append(parts, text)
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

// countsIn returns how often each answer was given: "12 granted, 3 sold out".
func countsIn(a *model.Answers) string {
	words := make([]string, len(a.Counts))
	for i, c := range a.Counts {
		words[i] = money.Count(c.N) + " " + strings.ReplaceAll(c.Name, "_", " ")
	}
	return strings.Join(words, ", ")
}

func requests(n int64) string { return money.Count(n) + " " + plural.Verb(n, "request", "requests") }

// barLength is the number of characters of a full bar.
const barLength = 40

func (w *watchedCampaign) screen(out io.Writer) error {
	t := newColumns(out)
	fmt.Fprintf(t, "%s\t%s\t%s\n", w.Campaign, styled(stateStyle(w.State), w.State), w.spec.Name)
	writeWindow(t, &w.spec)
	fmt.Fprintln(t)
	share := float64(w.Granted) / float64(max(w.Packets, 1))
	full := min(int(share*barLength), barLength)
	fmt.Fprintf(t, "granted\t%s of %s\t%.0f%%\t%s\n", money.Count(w.Granted), money.Count(w.Packets), 100*share, perSecond(w.Rate))
	if a := w.Answers; a != nil && a.Total > 0 {
		fmt.Fprintf(t, "answered\t%s\t\t%s\n", requests(a.Total), perSecond(w.AnswersRate))
		fmt.Fprintf(t, "\t%s\n", countsIn(a))
	}
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
