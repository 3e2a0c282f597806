package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func deadCmd() *cobra.Command {
	return family("dead", "Decide about dead letters: grants that a sink has given up",
		"A dead letter is a grant that a sink could not take, or an entry that can't be read. Only a person's decision removes\n"+
			"it. Redis stores the person and the reason of the decision with the letter.",
		deadListCmd(), deadShowCmd(), dangerous(deadRequeueCmd()), dangerous(deadDropCmd()), dangerous(deadConfirmCmd()))
}

// addFilter adds the flags that select dead letters. It returns a function that parses the time flags into the filter.
func addFilter(flags *pflag.FlagSet, f *model.LetterFilter) (times func() error) {
	from, until := "", ""
	flags.StringVar(&f.Sink, "sink", "", "only letters of these sinks, separated by commas (default all of deployment.sinks)")
	flags.StringVar(&f.Campaign, "campaign", "", "only letters of this campaign")
	flags.StringVar(&f.Class, "class", "", "only letters whose last error has this class: "+strings.Join(model.LetterClasses(), ", "))
	flags.StringVar(&f.User, "user", "", "only letters of this user")
	flags.StringVar(&f.Reason, "reason", "", "only letters whose reason contains this text")
	flags.StringVar(&from, "from-time", "", "only letters that became dead letters at or after this time, such as 2026-02-17T20:00:00Z")
	flags.StringVar(&until, "to-time", "", "only letters that became dead letters before this time")
	return func() (err error) {
		if f.From, err = parseTime("--from-time", from); err == nil {
			f.To, err = parseTime("--to-time", until)
		}
		return err
	}
}

func deadListCmd() *cobra.Command {
	in := ops.LetterList{Limit: 50}
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters by sink and shard, the oldest of a shard first",
		Example: "  hongbao dead list --sink kafka --class permanent\n  hongbao dead list --campaign spring-rain --limit " +
			"500 --json",
		Args: exactly(0, "no arguments"),
	}
	times := addFilter(cmd.Flags(), &in.LetterFilter)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmp.Or(times(), in.Check()); err != nil {
			return flagged(cmd, err)
		}
		return operate(cmd, app.Needs{}, func(o ops.Operations) error {
			page, err := o.ListLetters(cmd.Context(), in)
			if err != nil {
				return err
			}
			return printAnswer(cmd, page, func(w io.Writer) error { return writeLetters(w, &page) })
		})
	}
	cmd.Flags().StringVar(&in.After, "after", "", "continue after the letter with this id; the previous page printed it as next")
	cmd.Flags().IntVarP(&in.Limit, "limit", "n", in.Limit, "the most letters on a page")
	return cmd
}

func writeLetters(w io.Writer, p *deliveries.LetterPage) error {
	t := newColumns(w)
	fmt.Fprintln(t, "LETTER\tEVENT\tCAMPAIGN\tUSER\tAMOUNT\tCLASS\tATTEMPTS\tDIED\tREASON")
	for i := range p.Letters {
		l := &p.Letters[i]
		event, who, amount := "whole entry", "-\t-", "-"
		if g := l.Grant; g != nil {
			event, who, amount = g.EventID(), g.Campaign+"\t"+g.User, money.Text(g.Amount, g.Currency)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%.300q\n", l.ID, event, who, amount, l.Class, l.Attempts,
			l.Last.Format(time.RFC3339), l.Reason)
	}
	if p.Next != "" {
		fmt.Fprintf(t, "next: --after %s\n", p.Next)
	}
	if slices.ContainsFunc(model.GroupLetters(p.Letters), func(g model.LetterGroup) bool { return deliveries.Doubtful(&g) }) {
		fmt.Fprintln(t, "Class conflict: do not drop a credit in doubt. `hongbao dead show LETTER` prints the whole reason; see "+
			"docs/remote-balance.md#when-a-person-has-to-decide.")
	}
	return t.Flush()
}

func deadShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show LETTER", Short: "Print a dead letter as JSON: its grant or whole entry, its reason, class, attempts and times",
		Example: "  hongbao dead show kafka/0/1771358400000-0", Args: exactly(1, "one LETTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ops.CheckLetter(args[0]); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{}, func(o ops.Operations) error {
				l, err := o.ShowLetter(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printJSON(cmd, l)
			})
		},
	}
}

// countFirst is the part of the help about --dry-run and --expect.
const countFirst = "With filters, begin with --dry-run: it prints the number of letters. --expect must repeat that number. If the filters\n" +
	"then pick another number of letters, nothing is done."

// lettersCmd adds flags and the run function to the command requeue or drop. The flags set the fields of in, and do
// makes the decision.
func lettersCmd(cmd *cobra.Command, in *ops.Letters, does func(groups []model.LetterGroup) []model.Sentence,
	do func(ctx context.Context, o ops.Operations) (*model.LetterReport, error)) *cobra.Command {
	flags := cmd.Flags()
	times := addFilter(flags, &in.LetterFilter)
	addBy(flags, &in.By, &in.Why, "; stored with the letter (required)")
	expect := int64(0)
	flags.BoolVar(&in.All, "all", false, "select all letters; not together with LETTER or filters")
	flags.StringVar(&in.After, "after", "", "continue with the same filters after a report that ended early: its value next")
	flags.Int64Var(&expect, "expect", 0, "the number of letters that the filters or --all select, as --dry-run prints it (required with them)")
	flags.BoolVar(&in.DryRun, "dry-run", false, "only count the letters; change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkDecision(cmd, &stream.Decision{By: in.By, Why: in.Why}); err != nil {
			return err
		}
		if in.Letter = strings.Join(args, ","); flags.Changed("expect") {
			in.Expect = &expect
		}
		if err := cmp.Or(times(), in.Check()); err != nil {
			return flagged(cmd, err)
		}
		return operate(cmd, app.Needs{}, func(o ops.Operations) error {
			report, err := do(cmd.Context(), o)
			if report == nil {
				return err
			}
			printed := printAnswer(cmd, report, func(w io.Writer) error {
				if err := report.Write(w); err != nil || !in.DryRun {
					return err
				}
				if err := writeWhat(cmd.Context(), w, o, in, does); err != nil || in.Letter != "" {
					return err
				}
				_, err := fmt.Fprintf(w, "Run it with --expect %d and without --dry-run to decide them.\n", report.Matched)
				return err
			})
			return errors.Join(printed, err, in.Refused(report))
		})
	}
	return cmd
}

// lettersOf returns the first page of the selected letters.
func lettersOf(ctx context.Context, o ops.Operations, in *ops.Letters) (page deliveries.LetterPage, err error) {
	if in.Letter == "" {
		return o.ListLetters(ctx, ops.LetterList{LetterFilter: in.LetterFilter, After: in.After, Limit: model.MaxLetters})
	}
	for _, id := range in.IDs() {
		l, err := o.ShowLetter(ctx, id)
		if err != nil {
			return page, err
		}
		page.Letters = append(page.Letters, l)
	}
	return page, nil
}

// writeWhat prints what a requeue or a drop does with the selected letters. It reads as many as a page has.
func writeWhat(ctx context.Context, w io.Writer, o ops.Operations, in *ops.Letters,
	does func(groups []model.LetterGroup) []model.Sentence) error {
	letters, err := lettersOf(ctx, o, in)
	if err != nil || len(letters.Letters) == 0 {
		return err
	}
	say := does(model.GroupLetters(letters.Letters))
	if letters.Next != "" {
		say = append(say, model.Say("There are more letters: these are the first %d.", len(letters.Letters)))
	}
	for _, text := range say {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

func deadRequeueCmd() *cobra.Command {
	in := ops.Requeue{Patience: time.Minute}
	cmd := lettersCmd(&cobra.Command{
		Use: "requeue [LETTER...]", Short: "Deliver dead letters to their sinks, once, and resolve them",
		Long: "Delivers the grants of the letters to their sink. When the sink has a grant, its letter is resolved,\n" +
			"and stored with --by and --why. If the command was killed, run it again: it continues, and delivers\n" +
			"nothing twice. If the sink refuses a letter again, it remains a dead letter.\n\n" + countFirst,
		Example: "  hongbao dead requeue --sink kafka --class permanent --by ann --why \"topic takes 2 MB now\" --dry-run\n" +
			"  hongbao dead requeue kafka/0/1771358400000-0 --by ann --why \"topic takes 2 MB now\"",
	}, &in.Letters, deliveries.WhatRequeueDoes, func(ctx context.Context, o ops.Operations) (*model.LetterReport, error) {
		return o.RequeueLetters(ctx, in)
	})
	cmd.Flags().Float64Var(&in.Rate, "rate", 0, "the most grants per second; 0 for the sink's own limit")
	cmd.Flags().DurationVar(&in.Patience, "patience", in.Patience, "how long to try again while the sink does not answer")
	return cmd
}

func deadDropCmd() *cobra.Command {
	var in ops.Letters
	return lettersCmd(&cobra.Command{
		Use: "drop [LETTER...]", Short: "Resolve dead letters without delivering them",
		Long: "Resolves the letters without delivering them. Redis stores them complete, with --by and --why. The\n" +
			"audit lists their grants as not delivered by a person's decision.\n\n" + countFirst,
		Example: "  hongbao dead drop kafka/0/1771358400123-0 --by ann --why \"a test entry written by hand\"",
	}, &in, deliveries.WhatDropDoes, func(ctx context.Context, o ops.Operations) (*model.LetterReport, error) {
		return o.DropLetters(ctx, in)
	})
}
