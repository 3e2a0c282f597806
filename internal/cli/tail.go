package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// maxTail bounds `hongbao tail --limit`, because it keeps as many lines of each partition in memory.
const maxTail = 100_000

func tailCmd() *cobra.Command {
	t := deliveries.Tail{}
	since := ""
	cmd := &cobra.Command{
		Use: "tail", Short: "Print the topic's grants, one for each line",
		Long: "Prints the grants in the topic, one for each line: for people on a terminal, else or with --json as JSON.\n" +
			"Coupon codes are only in JSON. The command reads only the topic and asks no other server.\n" +
			"The grants of each partition are in the order of their offsets. With --limit all grants are in the\n" +
			"order of their times. With --follow standard error says once that Kafka can't be read, and once that it can\n" +
			"be read again.",
		Example: "  hongbao tail --campaign spring-rain\n  hongbao tail --since 10m -n 20\n  hongbao tail --since " +
			"2026-02-17T20:00:00Z\n" +
			"  hongbao tail -n 5 --follow",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkCampaigns(t.Campaigns...); err != nil {
				return err
			}
			if t.Last < -1 || t.Last > maxTail {
				return app.Usage("--limit %d: want 0 to %d", t.Last, maxTail)
			}
			if t.Since, err = parseSince(since); err != nil {
				return err
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				return runTail(cmd, a, t)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&t.Follow, "follow", "f", false, "also print new grants, until SIGINT")
	flags.StringSliceVar(&t.Campaigns, "campaign", nil, "only grants of these campaigns")
	flags.StringVar(&since, "since", "",
		"only grants published since then: a time such as 2026-02-17T20:00:00Z, or a duration ago such as 10m")
	flags.IntVarP(&t.Last, "limit", "n", -1, "only this number of newest grants; -1 for all")
	return cmd
}

// parseSince parses a time, or a duration before now. An empty text is the zero time.
func parseSince(text string) (time.Time, error) {
	ago, err := time.ParseDuration(text)
	if err != nil {
		return parseTime("--since", text)
	}
	if ago <= 0 {
		return time.Time{}, app.Usage("--since %s: how long ago must be above 0", text)
	}
	return time.Now().Add(-ago), nil
}

// runTail prints the records of the topic.
func runTail(cmd *cobra.Command, a *app.App, t deliveries.Tail) error {
	out := cmd.OutOrStdout()
	write := func(l deliveries.Tailed) error { return answers.Write(out, l, "") }
	if isTerminal(out) && !wantsJSON(cmd) {
		write = func(l deliveries.Tailed) error {
			_, err := fmt.Fprintln(plain{w: out}, tailLine(&l))
			return err
		}
	}
	t.Says = func(text string) { fmt.Fprintln(plain{w: cmd.ErrOrStderr()}, "hongbao tail:", text) }
	lines := make(chan deliveries.Tailed)
	printed := make(chan error, 1)
	go func() {
		var err error
		for l := range lines {
			if err == nil {
				err = write(l)
			}
		}
		printed <- err
	}()
	err := deliveries.Of(a).Tail(cmd.Context(), t, lines)
	close(lines)
	return errors.Join(err, wrap("print the topic", <-printed))
}

// tailLine formats a grant for people. The topic does not have the campaign's time zone, so the time is in UTC.
func tailLine(l *deliveries.Tailed) string {
	text := fmt.Sprintf("%s  %s  %s  ", l.Time.UTC().Format("2006-01-02T15:04:05.000Z"), l.Campaign, l.User)
	prize := "coupon" // without a value
	if l.Currency != "" {
		prize = money.Text(l.Amount, l.Currency)
	}
	return text + fmt.Sprintf("%s  packet %d  event %s", prize, l.Packet, l.Event)
}
