package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/remote"
	"github.com/hongbao-project/hongbao/internal/replay"
)

// confirmFlags are what a person has found out at the remote, and who it was.
type confirmFlags struct {
	booked, notBooked, dryRun bool
	asked                     string
	packets                   []string
	who                       replay.Decider
	patience                  time.Duration
}

func deadConfirmCmd() *cobra.Command {
	var f confirmFlags
	cmd := &cobra.Command{
		Use: "confirm [LETTER...]", Short: "Record what a person found out at the remote about credits in doubt, and end their letters",
		Long: "For letters of sink balance, with settlement.kind=remote, that only the owners of the remote can tell about. --booked: they have the\n" +
			"credit under the reference, as it was asked for; nothing is sent, and the ledger records it. --not-booked: they did not have it when they\n" +
			"were --asked, and no request could be under way any more; it is sent anew, once: what was sent after that time is in doubt again, so the\n" +
			"same command may run twice. The letters are kept among the decided ones, with who and why. Begin with --dry-run: it prints the\n" +
			"references to ask about. Where the remote or the ledger can tell, they are believed, not the person.\n" +
			"A credit whose letter was dropped, or whose event Redis has lost, is named with --packet, as spring-rain/17; `hongbao campaign refund`\n" +
			"waits for it and says which. If it is not booked it is forgotten, and not sent.",
		Example: "  hongbao dead confirm balance/0/1771358400000-0 --booked --by ann --why \"bank ticket 4711\" --dry-run\n" +
			"  hongbao dead confirm balance/0/1771358400000-0 --booked --by ann --why \"bank ticket 4711\"\n" +
			"  hongbao dead confirm balance/0/1771358400123-0 --not-booked --asked 2026-02-17T21:30:00Z --by ann --why \"bank ticket 4711\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			filter := replay.LetterFilter{Sinks: []string{configs.SinkBalance}}
			return withLetters(cmd, &filter, func(d *deps, letters *replay.Letters) error {
				return d.confirm(cmd, letters, replay.Pick{IDs: args, Filter: filter}, &f)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.booked, "booked", false, "the remote has the credits as they were asked for")
	flags.BoolVar(&f.notBooked, "not-booked", false, "the remote does not have them, and nothing is under way: send them anew")
	flags.StringSliceVar(&f.packets, "packet", nil, "a credit in doubt that has no letter any more, as rain/17; may be given often")
	flags.StringVar(&f.asked, "asked", "", "when the remote was looked at, as 2026-02-17T21:30:00Z (required with --not-booked)")
	flags.StringVar(&f.who.By, "by", "", "who found it out; kept with the letter (required)")
	flags.StringVar(&f.who.Why, "why", "", "how; kept with the letter (required)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the references and amounts only, write nothing")
	flags.DurationVar(&f.patience, "patience", time.Minute, "how long to try again while the remote or the ledger is out of reach")
	return cmd
}

func (f *confirmFlags) check(cmd *cobra.Command, ids []string) error {
	see := "(see `" + cmd.CommandPath() + " --help`)"
	switch {
	case len(ids)+len(f.packets) == 0:
		return usage("say which letters, by their ids, or which packets: each of them was looked up at the remote %s", see)
	case f.booked == f.notBooked:
		return usage("say either --booked or --not-booked %s", see)
	case f.who.By == "" || f.who.Why == "":
		return usage("--by and --why are required: who found it out, and how %s", see)
	case f.notBooked == (f.asked == ""):
		return usage("--asked goes with --not-booked, and only with that: when the remote was looked at %s", see)
	case f.patience < 0:
		return usage("--patience: give 0 or more")
	}
	for _, text := range f.packets {
		if _, err := parsePacket(text); err != nil {
			return err
		}
	}
	for _, id := range ids {
		sink, _, _, err := replay.ParseLetterID(id)
		if err != nil {
			return usageError{err}
		}
		if sink != configs.SinkBalance {
			return usage("letter %.120q is of sink %s: only those of sink %s are about credits; requeue or drop it", id, sink, configs.SinkBalance)
		}
	}
	return nil
}

// told is a person's word about credits at the remote; see remote.Config.
type told struct {
	verdict remote.Verdict
	at      time.Time
}

// word is what the remote's handler is told, and how it is kept with the letter.
func (f *confirmFlags) word() (told, replay.Decider, error) {
	if f.booked {
		return told{verdict: remote.Done}, replay.Decider{By: f.who.By, Why: "booked at the remote: " + f.who.Why}, nil
	}
	at, err := parseTime("--asked", f.asked)
	if err == nil && at.After(time.Now()) {
		err = usage("--asked %s: that is still to come", f.asked)
	}
	return told{remote.NotSent, at}, replay.Decider{By: f.who.By, Why: "not booked at the remote, asked at " + f.asked + ": " + f.who.Why}, err
}

// confirmed is the report of a confirmation: the letters', and the credits that it is about.
type confirmed struct {
	*replay.DeadReport
	Credits []confirmedCredit `json:"credits"`
	// Gone are letters that are not there any more: they were decided.
	Gone []string `json:"gone"`
}

type confirmedCredit struct {
	Letter    string         `json:"letter"`
	Reference string         `json:"reference"`
	Account   string         `json:"account"`
	Amount    hongbao.Amount `json:"amount"`
	Currency  string         `json:"currency,omitempty"`
}

func (c *confirmed) write(w io.Writer) error {
	for _, x := range c.Credits {
		if _, err := fmt.Fprintf(w, "%s: credit %s, %s to account %s\n", x.Letter, x.Reference, money.Text(x.Amount, x.Currency), x.Account); err != nil {
			return err
		}
	}
	for _, id := range c.Gone {
		if _, err := fmt.Fprintf(w, "%s: there is no such letter any more\n", id); err != nil {
			return err
		}
	}
	if c.DeadReport == nil {
		return nil
	}
	return c.Write(w)
}

func (d *deps) confirm(cmd *cobra.Command, letters *replay.Letters, pick replay.Pick, f *confirmFlags) error {
	word, who, err := f.word()
	switch {
	case err != nil:
		return err
	case d.cfg.Settlement.Kind != configs.SettleRemote:
		return usage("settlement.kind is %s: there is no remote that could have booked anything; requeue or drop the letters", d.cfg.Settlement.Kind)
	case f.booked && d.cfg.Remote.Queryable:
		return usage("remote.queryable is true, so nobody's word is needed: `hongbao dead requeue` asks the remote, and records what it has booked")
	}
	report := &confirmed{Credits: []confirmedCredit{}, Gone: []string{}}
	if err := d.confirmPackets(cmd.Context(), f, word, report); err != nil || len(pick.IDs) == 0 {
		return errors.Join(printAnswer(cmd, report, report.write), err)
	}
	if err := d.inDoubt(cmd.Context(), letters, &pick, report); err != nil {
		return err
	}
	handler, err := d.atRemote(cmd.Context(), false, word)
	if err != nil {
		return err
	}
	report.DeadReport, err = letters.Requeue(cmd.Context(), replay.RequeueConfig{
		Handler: handler, BatchGrants: d.cfg.Publisher.BatchGrants, Patience: f.patience, DryRun: f.dryRun}, pick, who)
	if err == nil && report.Failed+report.Unreadable > 0 {
		err = found("some letters stay, the report names why: what the ledger or the remote has is against them, or nobody can read them")
	}
	return errors.Join(printAnswer(cmd, report, report.write), err)
}

// inDoubt tells about the letters, and keeps in pick the letters that still exist: a person repeats a killed command with the same letters.
func (d *deps) inDoubt(ctx context.Context, letters *replay.Letters, pick *replay.Pick, report *confirmed) error {
	var there []string
	c := newCurrencies(d.currency)
	for _, id := range pick.IDs {
		x, err := letters.Get(ctx, id)
		if errors.Is(err, replay.ErrNoLetter) && len(pick.IDs) > 1 {
			report.Gone = append(report.Gone, id)
			continue
		}
		if err != nil {
			return err
		}
		there = append(there, id)
		if g := x.Grant; g != nil {
			report.Credits = append(report.Credits, confirmedCredit{id, remote.Key(d.cfg.Deployment.ID, g.Campaign, g.Packet), g.User, g.Amount,
				c.of(ctx, g.Campaign)})
		}
	}
	if pick.IDs = there; len(there) == 0 {
		return errors.New("none of the letters is there any more; `hongbao dead list` shows those that are")
	}
	return nil
}
