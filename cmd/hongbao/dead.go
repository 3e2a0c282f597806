package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

func deadCmd() *cobra.Command {
	return family("dead", "Look at dead letters, deliver them after all, or drop them",
		"A dead letter is a grant that a sink could not take, or an entry that can't be read. Nothing removes it but a "+
			"person's\n"+
			"decision, and that is kept with the letter, with who and why.",
		deadListCmd(), deadShowCmd(), deadRequeueCmd(), deadDropCmd(), deadConfirmCmd())
}

// letterFlags pick dead letters.
type letterFlags struct {
	filter      deadletter.Filter
	from, until string
}

func (f *letterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.filter.Sinks, "sink", nil, "only letters of these sinks; all of deployment.sinks if not given")
	flags.StringVar(&f.filter.Campaign, "campaign", "", "only letters of this campaign")
	flags.StringVar(&f.filter.Class, "class", "", "only letters of this class: "+strings.Join(deadletter.Classes(), ", "))
	flags.StringVar(&f.filter.User, "user", "", "only letters of this user")
	flags.StringVar(&f.filter.Reason, "reason", "", "only letters whose reason contains this text")
	flags.StringVar(&f.from, "from-time", "", "only letters that died at or after this time, as 2026-02-17T20:00:00Z")
	flags.StringVar(&f.until, "to-time", "", "only letters that died before this time")
}

func (f *letterFlags) check() (err error) {
	if f.filter.Class != "" && !slices.Contains(deadletter.Classes(), f.filter.Class) {
		return app.Usage("--class %.40q: want one of %s", f.filter.Class, strings.Join(deadletter.Classes(), ", "))
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

func deadListCmd() *cobra.Command {
	var f letterFlags
	after, limit := "", 50
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, oldest first within a sink and shard",
		Example: "  hongbao dead list --sink kafka --class permanent\n  hongbao dead list --campaign spring-rain --limit " +
			"500 --json",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if limit < 1 || limit > deadletter.MaxListed {
				return app.Usage("--limit %d: want 1 to %d", limit, deadletter.MaxListed)
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				page, err := a.ListLetters(cmd.Context(), f.filter, after, limit)
				if err != nil {
					return err
				}
				return printAnswer(cmd, page, func(w io.Writer) error { return writeLetters(w, &page) })
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&after, "after", "", "go on after this letter: what the page before printed as next")
	cmd.Flags().IntVar(&limit, "limit", limit, "letters on a page")
	return cmd
}

func writeLetters(w io.Writer, p *app.LetterPage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LETTER\tEVENT\tCAMPAIGN\tUSER\tAMOUNT\tCLASS\tATTEMPTS\tDIED\tREASON")
	for i := range p.Letters {
		l := &p.Letters[i]
		event, who, amount := "whole entry", "-\t-", "-"
		if g := l.Grant; g != nil {
			event, who, amount = g.EventID(), g.Campaign+"\t"+g.User, money.Text(g.Amount, g.Currency)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%.120q\n", l.ID, event, who, amount, l.Class, l.Attempts,
			l.Last.Format(time.RFC3339), l.Reason)
	}
	if p.Next != "" {
		fmt.Fprintf(t, "next: --after %s\n", p.Next)
	}
	return t.Flush()
}

func deadShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show LETTER", Short: "Print a dead letter as JSON: its grant or whole entry, reason, class, attempts, times",
		Example: "  hongbao dead show kafka/0/1771358400000-0", Args: exactly(1, "one LETTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, _, err := deadletter.ParseID(args[0]); err != nil {
				return app.Usage("%w", err)
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				l, err := a.Letter(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printJSON(cmd, l)
			})
		},
	}
}

// countFirst is the help of --expect.
const countFirst = "With filters, begin with --dry-run: it prints the number of letters, which --expect must repeat. If the " +
	"filters pick\nanother number by then, nothing is done."

// decideFlags are those of requeue and drop.
type decideFlags struct {
	letterFlags
	who    stream.Decision
	after  string
	expect int64
	dryRun bool
}

func (f *decideFlags) add(cmd *cobra.Command) {
	f.letterFlags.add(cmd)
	flags := cmd.Flags()
	addDecision(flags, &f.who, "; kept with the letter (required)")
	flags.StringVar(&f.after, "after", "", "go on after this letter, with the same filters: the next of a report that ended early")
	flags.Int64Var(&f.expect, "expect", 0, "how many letters the filters pick, as --dry-run prints it (required with filters)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count only, write nothing")
}

// pick reads which letters are meant: some by name, or those of a filter and their number.
func (f *decideFlags) pick(cmd *cobra.Command, ids []string) (deadletter.Pick, error) {
	none := deadletter.Pick{}
	if err := checkDecision(cmd, &f.who); err != nil {
		return none, err
	}
	if err := f.check(); err != nil {
		return none, err
	}
	if f.filter.Some() == (len(ids) > 0) {
		return none, app.Usage(
			"say which letters: either their ids, or a filter such as --sink kafka --class permanent (see `%s --help`)",
			cmd.CommandPath())
	}
	named := ids
	if f.after != "" {
		if len(ids) > 0 {
			return none, app.Usage("--after goes with filters, not with letters that are named")
		}
		named = []string{f.after}
	}
	for _, id := range named {
		if _, _, _, err := deadletter.ParseID(id); err != nil {
			return none, app.Usage("%w", err)
		}
	}
	expect, err := f.expected(cmd, len(ids) > 0)
	return deadletter.Pick{IDs: ids, Filter: f.filter, After: f.after, Expect: expect}, err
}

// expected reads how many letters a person expects the filters to pick; nil for letters that are named.
func (f *decideFlags) expected(cmd *cobra.Command, named bool) (*int64, error) {
	given := cmd.Flags().Changed("expect")
	switch {
	case named && given:
		return nil, app.Usage("--expect goes with filters, not with letters that are named")
	case f.expect < 0:
		return nil, app.Usage("--expect %d: want 0 or more", f.expect)
	case !named && !given && !f.dryRun:
		return nil, app.Usage("--expect is required with filters: `%s --dry-run` prints how many letters they pick",
			cmd.CommandPath())
	case !given:
		return nil, nil
	}
	return &f.expect, nil
}

// print prints what came of a decision, and after a dry run how to make it.
func (f *decideFlags) print(cmd *cobra.Command, ids []string, r *deadletter.Report) error {
	return printAnswer(cmd, r, func(w io.Writer) error {
		if err := r.Write(w); err != nil || !f.dryRun || len(ids) > 0 {
			return err
		}
		_, err := fmt.Fprintf(w, "Run it with --expect %d and without --dry-run to decide them.\n", r.Matched)
		return err
	})
}

func deadRequeueCmd() *cobra.Command {
	var f decideFlags
	rate, patience := 0.0, time.Minute
	cmd := &cobra.Command{
		Use: "requeue [LETTER...]", Short: "Deliver dead letters to their sink after all, once, and end them",
		Long: "Delivers the grants of the letters to their sink. When the sink has one, its letter is ended, with who and " +
			"why. Killed anywhere, the\n" +
			"same command goes on, and nothing is delivered twice. Letters that the sink refuses again stay as they are.\n\n" +
			countFirst,
		Example: "  hongbao dead requeue --sink kafka --class permanent --by ann --why \"topic takes 2 MB now\" --dry-run\n" +
			"  hongbao dead requeue kafka/0/1771358400000-0 --by ann --why \"topic takes 2 MB now\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			pick, err := f.pick(cmd, args)
			if err != nil {
				return err
			}
			if rate < 0 || patience < 0 {
				return app.Usage("--rate and --patience: give 0 or more")
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				report, err := a.Requeue(cmd.Context(),
					app.Requeue{Pick: pick, Decision: f.who, Rate: rate, Patience: patience, DryRun: f.dryRun})
				if report == nil {
					return err
				}
				return errors.Join(f.print(cmd, args, report), err)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().Float64Var(&rate, "rate", 0, "grants per second at most; 0 for the sink's own bound")
	cmd.Flags().DurationVar(&patience, "patience", patience, "how long to try again while the sink is out of reach")
	return cmd
}

func deadDropCmd() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "drop [LETTER...]", Short: "Decide that dead letters are not to be delivered, and end them",
		Long: "Ends the letters without delivering them. They are kept among the resolved ones, whole, with who and why, and " +
			"the audit names\n" +
			"their grants as decided.\n\n" + countFirst,
		Example: "  hongbao dead drop kafka/0/1771358400123-0 --by ann --why \"a test entry written by hand\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			pick, err := f.pick(cmd, args)
			if err != nil {
				return err
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				report, err := a.DropLetters(cmd.Context(), pick, f.who, f.dryRun)
				if report == nil {
					return err
				}
				return errors.Join(f.print(cmd, args, report), err)
			})
		},
	}
	f.add(cmd)
	return cmd
}
