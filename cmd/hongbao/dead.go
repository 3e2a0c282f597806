package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/internal/shards"
)

func deadCmd() *cobra.Command {
	return family("dead", "Look at dead letters, deliver them after all, or drop them",
		"A dead letter is a grant that a sink could not take, or an entry that can't be read. Nothing removes it but a person's\n"+
			"decision, and that is kept with the letter, with who and why.",
		deadListCmd(), deadShowCmd(), deadRequeueCmd(), deadDropCmd(), deadConfirmCmd())
}

// letterFlags pick dead letters.
type letterFlags struct {
	filter      replay.LetterFilter
	from, until string
}

func (f *letterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.filter.Sinks, "sink", nil, "only letters of these sinks; all of deployment.sinks if not given")
	flags.StringVar(&f.filter.Campaign, "campaign", "", "only letters of this campaign")
	flags.StringVar(&f.filter.Class, "class", "", "only letters of this class: "+strings.Join(replay.Classes(), ", "))
	flags.StringVar(&f.filter.User, "user", "", "only letters of this user")
	flags.StringVar(&f.from, "from-time", "", "only letters that died at or after this time, as 2026-02-17T20:00:00Z")
	flags.StringVar(&f.until, "to-time", "", "only letters that died before this time")
}

func (f *letterFlags) check() (err error) {
	if f.filter.Class != "" && !slices.Contains(replay.Classes(), f.filter.Class) {
		return usage("--class %.40q: want one of %s", f.filter.Class, strings.Join(replay.Classes(), ", "))
	}
	if f.filter.Campaign != "" {
		if err := checkCampaigns(f.filter.Campaign); err != nil {
			return err
		}
	}
	if f.filter.From, err = parseTime("--from-time", f.from); err != nil {
		return err
	}
	f.filter.To, err = parseTime("--to-time", f.until)
	return err
}

// withLetters is with, for dead letters; it completes the filter.
func withLetters(cmd *cobra.Command, f *replay.LetterFilter, do func(*deps, *replay.Letters) error) error {
	return with(cmd, needs{}, func(d *deps) error {
		if err := d.checkSinks(f.Sinks); err != nil {
			return err
		}
		if len(f.Sinks) == 0 {
			f.Sinks = slices.Clone(d.cfg.Deployment.Sinks)
		}
		if err := d.openRedis(cmd.Context()); err != nil {
			return err
		}
		letters, err := replay.NewLetters(replay.LettersConfig{Redis: d.redis, Space: d.space})
		if err != nil {
			return err
		}
		return do(d, letters)
	})
}

func deadListCmd() *cobra.Command {
	var f letterFlags
	after, limit := "", 50
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, oldest first within a sink and shard",
		Example: "  hongbao dead list --sink kafka --class permanent\n  hongbao dead list --campaign spring-rain --limit 500 --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if limit < 1 || limit > replay.MaxListed {
				return usage("--limit %d: want 1 to %d", limit, replay.MaxListed)
			}
			return withLetters(cmd, &f.filter, func(d *deps, letters *replay.Letters) error {
				page, next, err := letters.List(cmd.Context(), f.filter, after, limit)
				if err != nil {
					return err
				}
				c := newCurrencies(d.currency)
				for i := range page {
					c.complete(cmd.Context(), page[i].Grant)
				}
				out := letterPage{page, next}
				return printAnswer(cmd, out, out.write)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&after, "after", "", "go on after this letter: what the page before printed as next")
	cmd.Flags().IntVar(&limit, "limit", limit, "letters on a page")
	return cmd
}

// letterPage is a page of the list.
type letterPage struct {
	Letters []replay.Letter `json:"letters"`
	Next    string          `json:"next"` // goes to --after for the next page; empty if there is none
}

func (p *letterPage) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LETTER\tEVENT\tCAMPAIGN\tUSER\tAMOUNT\tCLASS\tATTEMPTS\tDIED\tREASON")
	for i := range p.Letters {
		l := &p.Letters[i]
		event, who, amount := "whole entry", "-\t-", "-"
		if g := l.Grant; g != nil {
			event, who, amount = g.EventID(), g.Campaign+"\t"+g.User, money.Text(g.Amount, g.Currency)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%.120q\n", l.ID, event, who, amount, l.Class, l.Attempts, l.Last.Format(time.RFC3339), l.Reason)
	}
	if p.Next != "" {
		fmt.Fprintf(t, "next: --after %s\n", p.Next)
	}
	return t.Flush()
}

func deadShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show LETTER", Short: "Print a dead letter as JSON: the whole entry, reason, class, attempts, times",
		Example: "  hongbao dead show kafka/0/1771358400000-0", Args: exactly(1, "one LETTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, _, err := replay.ParseLetterID(args[0]); err != nil {
				return usageError{err}
			}
			return withLetters(cmd, &replay.LetterFilter{}, func(d *deps, letters *replay.Letters) error {
				l, err := letters.Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				newCurrencies(d.currency).complete(cmd.Context(), l.Grant)
				return printJSON(cmd, l)
			})
		},
	}
}

// decideFlags are those of requeue and drop.
type decideFlags struct {
	letterFlags
	who    replay.Decider
	dryRun bool
}

func (f *decideFlags) add(cmd *cobra.Command) {
	f.letterFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.who.By, "by", "", "who decides; kept with the letter (required)")
	flags.StringVar(&f.who.Why, "why", "", "why; kept with the letter (required)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count only, write nothing")
}

// pick reads which letters are meant. To decide about all there are at once, their sink must be named at least.
func (f *decideFlags) pick(cmd *cobra.Command, ids []string) (replay.Pick, error) {
	if f.who.By == "" || f.who.Why == "" {
		return replay.Pick{}, usage("--by and --why are required: who decides, and why (see `%s --help`)", cmd.CommandPath())
	}
	filtered := false
	for _, name := range []string{"sink", "campaign", "class", "user", "from-time", "to-time"} {
		filtered = filtered || cmd.Flags().Changed(name)
	}
	if filtered == (len(ids) > 0) {
		return replay.Pick{}, usage("say which letters: either their ids, or a filter such as --sink kafka --class permanent (see `%s --help`)", cmd.CommandPath())
	}
	for _, id := range ids {
		if _, _, _, err := replay.ParseLetterID(id); err != nil {
			return replay.Pick{}, usageError{err}
		}
	}
	return replay.Pick{IDs: ids, Filter: f.filter}, f.check()
}

func deadRequeueCmd() *cobra.Command {
	var f decideFlags
	rate, patience := 0.0, time.Minute
	cmd := &cobra.Command{
		Use: "requeue [LETTER...]", Short: "Deliver dead letters to their sink after all, once, and end them",
		Long: "Delivers the grants of the letters to their sink. When the sink has one, its letter is ended, with who and why. Killed anywhere, the\n" +
			"same command goes on, and nothing is delivered twice. Letters that the sink refuses again stay as they are.",
		Example: "  hongbao dead requeue --sink kafka --class permanent --by ann --why \"topic takes 2 MB now\" --dry-run\n" +
			"  hongbao dead requeue kafka/0/1771358400000-0 --by ann --why \"topic takes 2 MB now\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			pick, err := f.pick(cmd, args)
			if err != nil {
				return err
			}
			if rate < 0 || patience < 0 {
				return usage("--rate and --patience: give 0 or more")
			}
			return withLetters(cmd, &pick.Filter, func(d *deps, letters *replay.Letters) error {
				cfg := replay.RequeueConfig{BatchGrants: d.cfg.Publisher.BatchGrants, Rate: rate, Patience: patience, DryRun: f.dryRun}
				report, err := d.requeueAll(cmd.Context(), letters, cfg, &pick, f.who)
				if report == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, report, report.Write), err)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().Float64Var(&rate, "rate", 0, "grants per second at most; 0 for no bound")
	cmd.Flags().DurationVar(&patience, "patience", patience, "how long to try again while the sink is out of reach")
	return cmd
}

// bySink splits what was picked: each sink has a handler of its own.
func bySink(pick *replay.Pick) []replay.Pick {
	ids := map[string][]string{}
	for _, id := range pick.IDs {
		sink, _, _ := strings.Cut(id, "/")
		ids[sink] = append(ids[sink], id)
	}
	var out []replay.Pick
	for _, sink := range pick.Filter.Sinks {
		one := replay.Pick{IDs: ids[sink], Filter: pick.Filter}
		one.Filter.Sinks = []string{sink}
		if len(pick.IDs) == 0 || len(one.IDs) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// requeueAll requeues sink by sink, to one report; what one sink does does not stop the next.
func (d *deps) requeueAll(ctx context.Context, letters *replay.Letters, cfg replay.RequeueConfig, pick *replay.Pick, who replay.Decider) (
	all *replay.DeadReport, err error) {
	for _, p := range bySink(pick) {
		r, failed := d.requeue(ctx, letters, cfg, &p, who)
		err = errors.Join(err, failed)
		if all == nil {
			all = r
		} else if r != nil {
			all.Add(r)
		}
	}
	return all, err
}

func (d *deps) requeue(ctx context.Context, letters *replay.Letters, cfg replay.RequeueConfig, pick *replay.Pick, who replay.Decider) (
	_ *replay.DeadReport, err error) {
	sink := pick.Filter.Sinks[0]
	if sink == configs.SinkKafka {
		claims := d.cfg.ClaimsConfig()
		claims.Done = replay.RequeueSink(sink)
		cfg.Handler, err = d.publisherTo(ctx, d.cfg.Kafka.Topic, claims, &shards.Reader{Redis: d.redis, Space: d.space})
	} else if d.cfg.Settlement.Kind == configs.SettleRemote {
		cfg.Handler, err = d.atRemote(ctx, false, told{})
	} else {
		cfg.Handler, err = d.handler(ctx, sink)
	}
	if err != nil {
		return nil, err
	}
	report, err := letters.Requeue(ctx, cfg, *pick, who)
	if err == nil && report.Failed > 0 {
		err = found("sink %s refused %d letters again, they stay: mend what the report names, then requeue or drop them", sink, report.Failed)
	}
	if err == nil && report.Unreadable > 0 && len(pick.IDs) > 0 {
		err = found("sink %s: %d of the letters named can't be delivered: `hongbao dead drop` ends them", sink, report.Unreadable)
	}
	return report, err
}

func deadDropCmd() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "drop [LETTER...]", Short: "Decide that dead letters are not to be delivered, and end them",
		Long: "Ends the letters without delivering them. They are kept among the decided ones, whole, with who and why, and the audit names\n" +
			"their grants as decided.",
		Example: "  hongbao dead drop kafka/0/1771358400123-0 --by ann --why \"a test entry written by hand\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			pick, err := f.pick(cmd, args)
			if err != nil {
				return err
			}
			return withLetters(cmd, &pick.Filter, func(d *deps, letters *replay.Letters) error {
				report, err := letters.Drop(cmd.Context(), pick, f.who, f.dryRun)
				return errors.Join(printAnswer(cmd, report, report.Write), err)
			})
		},
	}
	f.add(cmd)
	return cmd
}
