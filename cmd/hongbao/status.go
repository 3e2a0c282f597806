package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the progress of each sink: waiting, parked and dead grants, and its live workers",
		Long: "Shows the status of each sink by shard: the grants and closes that wait and since when, the entries\n" +
			"that are parked for another attempt, and the dead letters. For each worker the command shows when\n" +
			"the worker last called Redis, and its pending entries. It names the campaigns whose window ended more\n" +
			"than a day ago and that are not refunded, and the events that a sink does not owe: those before it was\n" +
			"added, and those between its removal and its return. It only reads. The exit code is 3 if grants wait\n" +
			"for a sink without a live worker.",
		Example: "  hongbao status\n  hongbao status --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				s, err := o.ListSinks(cmd.Context())
				if err != nil {
					return err
				}
				if err := printAnswer(cmd, s, func(w io.Writer) error { return writeStatus(w, s) }); err != nil {
					return err
				}
				return errors.Join(s.Deserted(), s.CheckRead())
			})
		},
	}
}

func writeStatus(w io.Writer, s *app.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SINK\tSHARD\tSEQ\tWAITING\tSINCE\tPARKED\tDEAD")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Shards {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%d\t%d\n", s.Sinks[i].Sink, x.Shard, x.Seq, x.Waiting, seconds(x.Oldest),
				x.Parked, x.Dead)
		}
	}
	for _, u := range s.Unrecorded {
		fmt.Fprintf(t, "\nshard %d: %s\n", u.Shard, u.Why)
	}
	for i := range s.Unrefunded {
		fmt.Fprintf(t, "\n%s\n", app.UnrefundedText(&s.Unrefunded[i]))
	}
	for _, line := range app.NotOwedText(s.NotOwed) {
		fmt.Fprintf(t, "\n%s\n", line)
	}
	writePauses(t, s.Sinks)
	fmt.Fprintln(t, "\nSINK\tWORKER\tSEEN\tHOLDS\t")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Workers {
			note := ""
			if !x.Alive {
				note = "not alive: another worker takes over its entries"
			}
			fmt.Fprintf(t, "%s\t%s\t%s ago\t%d\t%s\n", s.Sinks[i].Sink, x.Worker, seconds(&x.Seen), x.Holds, note)
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
