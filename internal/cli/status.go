package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func statusCmd() *cobra.Command {
	var every time.Duration
	watch := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show the progress of each sink: waiting, parked and dead grants, and its live workers",
		Long: "Shows the status of each sink by shard: the grants and closes that wait and since when, the entries\n" +
			"that are parked for another attempt, and the dead letters. For each worker the command shows when\n" +
			"the worker last called Redis, and its pending entries. It names the campaigns whose window ended more\n" +
			"than a day ago and that are not refunded, and the events that a sink does not owe: those before it was\n" +
			"added, and those between its removal and its return. It only reads. The exit code is 3 if grants wait\n" +
			"for a sink without a live worker, or if a sink is down. With --watch the tables are shown in place on a terminal, and else a\n" +
			"line for each change, until Ctrl-C; the exit code is then 0. If only the number of waiting grants changes,\n" +
			"the next line comes after ten seconds.",
		Example: "  hongbao status\n  hongbao status --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkInterval(every); err != nil {
				return err
			}
			if !watch && cmd.Flags().Changed("interval") {
				return app.Usage("--interval needs --watch (see `%s --help`)", cmd.CommandPath())
			}
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				if watch {
					return newWatcher(cmd, every).run(cmd.Context(), func(ctx context.Context) (reading, error) {
						s, err := o.ListSinks(ctx)
						return watchedStatus{s}, err
					})
				}
				s, err := o.ListSinks(cmd.Context())
				if err != nil {
					return err
				}
				if err := printAnswer(cmd, s, func(w io.Writer) error { return writeStatus(w, s) }); err != nil {
					return err
				}
				return errors.Join(s.Deserted(), s.Down(), s.CheckRead())
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again and again until Ctrl-C")
	addInterval(cmd, &every)
	return cmd
}

// watchedStatus is a reading of the sinks.
type watchedStatus struct{ *deliveries.Status }

func (watchedStatus) zone() *time.Location { return time.UTC }

func (s watchedStatus) screen(w io.Writer) error {
	if _, err := fmt.Fprintln(w, s.line()); err != nil {
		return err
	}
	return writeStatus(w, s.Status)
}

// line returns the state and the numbers of each sink.
func (s watchedStatus) line() string { return s.text(true) }

// news leaves out how many grants wait: that number differs at nearly every reading while users grab.
func (s watchedStatus) news() string { return s.text(false) }

func (s watchedStatus) text(waiting bool) string {
	var parts []string
	for i := range s.Sinks {
		x := &s.Sinks[i]
		text := x.Sink + " " + strings.ReplaceAll(string(x.State), "_", " ")
		if waiting {
			text += ", " + money.Count(x.Waiting) + " waiting"
		}
		if x.Parked > 0 {
			text += ", " + money.Count(x.Parked) + " parked"
		}
		if x.Dead > 0 {
			text += ", " + money.Count(x.Dead) + " dead"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func writeStatus(w io.Writer, s *deliveries.Status) error {
	t := newColumns(w)
	fmt.Fprintln(t, "SINK\tSHARD\tSEQ\tWAITING\tSINCE\tPARKED\tDEAD")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Shards {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", s.Sinks[i].Sink, x.Shard, x.Seq, money.Count(x.Waiting), seconds(x.Oldest),
				styledIf(x.Parked > 0, warn, money.Count(x.Parked)), styledIf(x.Dead > 0, bad, money.Count(x.Dead)))
		}
	}
	for _, u := range s.Unrecorded {
		fmt.Fprintf(t, "\nshard %d: %s\n", u.Shard, u.Why)
	}
	for i := range s.Unrefunded {
		fmt.Fprintf(t, "\n%s\n", deliveries.UnrefundedText(&s.Unrefunded[i]))
	}
	for _, line := range deliveries.NotOwedText(s.NotOwed) {
		fmt.Fprintf(t, "\n%s\n", line)
	}
	writePauses(t, s.Sinks)
	fmt.Fprintln(t, "\nSINK\tWORKER\tSEEN\tHOLDS\t")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Workers {
			note := ""
			switch {
			case !x.Alive && x.Holds > 0:
				note = styled(warn, "not alive: another worker takes over its entries")
			case !x.Alive:
				note = styled(faint, "not alive, and holds nothing")
			}
			fmt.Fprintf(t, "%s\t%s\t%s ago\t%s\t%s\n", s.Sinks[i].Sink, x.Worker, seconds(&x.Seen), money.Count(x.Holds), note)
		}
	}
	return t.Flush()
}

// seconds formats a delay. It returns 0s if no grant waits.
func seconds(s *float64) string {
	if s == nil {
		return "0s"
	}
	return time.Duration(*s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
