package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func sinkCmd() *cobra.Command {
	return family("sink", "Pause, resume, limit or remove a sink, and show the status of all sinks",
		"A sink is the destination of grants: balance (the ledger, or a remote balance system), kafka (the\n"+
			"topic), a webhook, or a sink of your own. A pause reaches all workers of the deployment within a\n"+
			"second. Grabs continue, and their grants wait in Redis. pause, resume and limit also accept a consumer\n"+
			"group that deployment.sinks does not name.",
		sinkListCmd(), sinkPauseCmd(), sinkResumeCmd(), sinkLimitCmd(), sinkRemoveCmd())
}

func sinkListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Show the status of each sink: waiting, pending, parked and dead grants, and who has paused it",
		Long: "Lists the sinks. The exit code says only whether they could be read. `hongbao status` ends with 3 if a sink is\n" +
			"down, so scripts check by it.",
		Example: "  hongbao sink list\n  hongbao sink list --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				s, err := o.ListSinks(cmd.Context())
				if err != nil {
					return err
				}
				if err := printAnswer(cmd, s, func(w io.Writer) error { return writeSinks(w, s.Sinks) }); err != nil {
					return err
				}
				return s.CheckRead()
			})
		},
	}
}

func writeSinks(w io.Writer, sinks []deliveries.SinkStatus) error {
	t := newColumns(w)
	fmt.Fprintln(t, "SINK\tSTATE\tWAITING\tSINCE\tPENDING\tPARKED\tDEAD\tWORKERS")
	for i := range sinks {
		s, alive := &sinks[i], 0
		for _, x := range s.Workers {
			if x.Alive {
				alive++
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", s.Sink, styled(sinkStyle(s.State), string(s.State)), money.Count(s.Waiting),
			seconds(s.Oldest), money.Count(s.Pending), money.Count(s.Parked), money.Count(s.Dead), alive)
	}
	writePauses(t, sinks)
	return t.Flush()
}

// writePauses prints for each sink why it does not work, its pauses, and the limit that a person set.
func writePauses(w io.Writer, sinks []deliveries.SinkStatus) {
	for i := range sinks {
		s := &sinks[i]
		if s.Why != "" && !s.Pause.Paused {
			fmt.Fprintf(w, "%s: %s\n", s.Sink, s.Why)
		}
		for _, c := range s.Campaigns {
			fmt.Fprintf(w, "%s: campaign %s is paused by %q since %s: %q\n", s.Sink, c.Campaign, c.By,
				c.At.UTC().Format(time.RFC3339), c.Why)
		}
		if rate := s.Limit.GrantsPerSecond; rate != nil {
			fmt.Fprintf(w, "%s is limited to %s by %q since %s: %q\n", s.Sink, rateText(*rate), s.Limit.By,
				s.Limit.At.UTC().Format(time.RFC3339), s.Limit.Why)
		}
		if !s.Pause.Paused {
			continue
		}
		where := ""
		if n := len(s.Shards); s.Pause.PausedShards < n {
			where = fmt.Sprintf(", on %d of %d shards only: pause or resume it again", s.Pause.PausedShards, n)
		}
		fmt.Fprintf(w, "%s is paused by %q since %s%s: %q\n", s.Sink, s.Pause.By,
			s.Pause.At.UTC().Format(time.RFC3339), where, s.Pause.Why)
	}
}

func rateText(rate int) string {
	if rate == 0 {
		return "no bound"
	}
	return fmt.Sprintf("%d grants a second", rate)
}

func sinkPauseCmd() *cobra.Command {
	cmd := pauseSinkCmd(ops.Operations.PauseSink, true)
	cmd.Use, cmd.Short = "pause SINK", "Stop the deliveries of all workers to a sink, until it is resumed"
	cmd.Long = "Each worker stops within a second. It finishes the call to the sink that has begun, returns its other\n" +
		"grants to the group, and counts no attempt. Replays and requeued letters are a person's own work and are\n" +
		"delivered. When producer.max_backlog events wait, grabs are busy; for a webhook or\n" +
		"a sink of your own only with blocks_grabs."
	cmd.Example = "  hongbao sink pause balance --by ann --why \"the bank is closed until 02:00\""
	return cmd
}

func sinkResumeCmd() *cobra.Command {
	cmd := pauseSinkCmd(ops.Operations.ResumeSink, false)
	cmd.Use, cmd.Short = "resume SINK", "Resume a paused sink, at all workers"
	cmd.Long = "A worker pauses a campaign for a sink by itself if too many of its grants become dead letters within a\n" +
		"minute (consumer.pause_letters). --campaign resumes that campaign."
	cmd.Example = "  hongbao sink resume balance --by ann --why \"the bank is open\"\n" +
		"  hongbao sink resume balance --campaign spring-rain --by ann --why \"the bank takes it now\""
	return cmd
}

// pauseSinkCmd adds flags and the run function to the command pause or resume, for a sink or one campaign of it.
func pauseSinkCmd(do func(o ops.Operations, ctx context.Context, in ops.SinkPause) (deliveries.SinkChange, error), pause bool) *cobra.Command {
	var in ops.SinkPause
	cmd := sinkControlCmd(&in.By, &in.Why, in.Check, func(ctx context.Context, o ops.Operations, sink string) (deliveries.SinkChange, error) {
		in.Sink = sink
		return do(o, ctx, in)
	}, writePause(pause))
	cmd.Flags().StringVar(&in.Campaign, "campaign", "", "only this campaign; the sink's other grants are not affected")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if in.Campaign == "" && cmd.Flags().Changed("campaign") { // the variable in --campaign "$X" may be unset
			return app.Usage("--campaign is empty: give an id, or leave it out for the whole sink")
		}
		return nil
	}
	return cmd
}

func sinkLimitCmd() *cobra.Command {
	var in ops.SinkLimit
	rate := 0
	cmd := sinkControlCmd(&in.By, &in.Why, in.Check, func(ctx context.Context, o ops.Operations, sink string) (deliveries.SinkChange, error) {
		in.Sink = sink
		return o.LimitSink(ctx, in)
	}, func(w io.Writer, c *deliveries.SinkChange) error {
		limit := "the knob of each worker"
		if c.Limit.GrantsPerSecond != nil {
			limit = rateText(*c.Limit.GrantsPerSecond)
		}
		_, err := fmt.Fprintf(w, "%s is limited to %s\n", c.Sink, limit)
		return err
	})
	cmd.Use, cmd.Short = "limit SINK", "Limit the grants per second that all workers together deliver to a sink"
	cmd.Long = "Workers apply the limit within about two seconds, and share the rate about equally. Redis stores the limit.\n" +
		"The limit overrides the knob sinks.SINK_grants_per_second, until --by-knob removes the limit."
	cmd.Example = "  hongbao sink limit balance --rate 500 --by ann --why \"the bank asked for it\""
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("rate") {
			in.GrantsPerSecond = &rate
		}
		return nil
	}
	cmd.Flags().IntVar(&rate, "rate", 0, "the most grants per second; 0 for no limit")
	cmd.Flags().BoolVar(&in.ByKnob, "by-knob", false, "remove the limit, so that each worker uses its knob again")
	return cmd
}

// sinkControlCmd returns a command that changes a sink. by and why point to fields of the input that do uses.
func sinkControlCmd(by, why *string, check func() error, do func(ctx context.Context, o ops.Operations, sink string) (deliveries.SinkChange, error),
	write func(w io.Writer, c *deliveries.SinkChange) error) *cobra.Command {
	cmd := &cobra.Command{
		Args: exactly(1, "one SINK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(cmd, &stream.Decision{By: *by, Why: *why}); err != nil {
				return err
			}
			if err := check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				c, err := do(cmd.Context(), o, args[0])
				if err != nil {
					return err
				}
				return printAnswer(cmd, c, func(w io.Writer) error { return write(w, &c) })
			})
		},
	}
	addBy(cmd.Flags(), by, why, "; stored in Redis and in the ledger (required)")
	return cmd
}

// writePause prints the result of a pause or a resume. A change that changed nothing says so, with the pause that stays.
func writePause(pause bool) func(w io.Writer, c *deliveries.SinkChange) error {
	return func(w io.Writer, c *deliveries.SinkChange) error {
		what, at, kept := c.Sink, "", &deliveries.PausedCampaign{By: c.Pause.By, Why: c.Pause.Why, At: c.Pause.At}
		if c.Campaign != "" {
			what, at, kept = "campaign "+c.Campaign, " at "+c.Sink, c.Kept
		}
		switch {
		case !c.Changed && !pause:
			_, err := fmt.Fprintf(w, "%s was not paused%s: nothing was changed\n", what, at)
			return err
		case !c.Changed && kept != nil:
			return writeKept(w, what, at, kept.By, kept.Why, kept.At)
		case pause:
			_, err := fmt.Fprintf(w, "%s is paused%s\n", what, at)
			return err
		}
		_, err := fmt.Fprintf(w, "%s is resumed%s\n", what, at)
		return err
	}
}

// writeKept says that a pause changed nothing, because an earlier pause stays.
func writeKept(w io.Writer, what, where, by, why string, at time.Time) error {
	_, err := fmt.Fprintf(w, "%s was paused%s already, by %q since %s: %q\n"+
		"Nothing was changed: that pause stays. The journal has your reason, too.\n", what, where, by,
		at.UTC().Format(time.RFC3339), why)
	return err
}
