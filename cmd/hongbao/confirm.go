package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/sink/remote"
)

// confirmFlags are the facts that a person found out at the remote, and the person's name.
type confirmFlags struct {
	booked, notBooked, dryRun bool
	asked                     string
	packets                   []string
	who                       stream.Decision
	patience                  time.Duration
}

func deadConfirmCmd() *cobra.Command {
	var f confirmFlags
	cmd := &cobra.Command{
		Use:   "confirm [LETTER...]",
		Short: "Record what a person found out at the remote about credits in doubt, and end their letters",
		Long: `A person records here what only the owners of the remote can tell about letters of sink balance, where
settlement.kind is remote.

--booked: the remote has the credit under its reference, as we asked for it. Nothing is sent, and the ledger records it.
--not-booked: the remote did not have it at the time --asked, and no request could be under way any more. It is sent
again, once. A request after that time is in doubt again, so the same command may run twice.

The letters are kept among the resolved ones, with who and why. Begin with --dry-run: it prints the references to ask
about. Where the remote or the ledger can tell, its answer counts, and not the person's.

A credit whose letter was dropped, or whose event Redis has lost, is named with --packet, as spring-rain/17; ` +
			"`hongbao campaign refund`" + `
waits for it and says which. If it is not booked it is forgotten, and not sent.`,
		Example: "  hongbao dead confirm balance/0/1771358400000-0 --booked --by ann --why \"bank ticket 4711\" --dry-run\n" +
			"  hongbao dead confirm balance/0/1771358400000-0 --booked --by ann --why \"bank ticket 4711\"\n" +
			"  hongbao dead confirm balance/0/1771358400123-0 --not-booked --asked 2026-02-17T21:30:00Z --by ann --why \"bank " +
			"ticket 4711\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			o, err := f.confirmation(args)
			if err != nil {
				return err
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				report, err := a.Confirm(cmd.Context(), o)
				if report == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, report, func(w io.Writer) error { return writeConfirmed(w, report) }), err)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.booked, "booked", false, "the remote has the credits as they were asked for")
	flags.BoolVar(&f.notBooked, "not-booked", false,
		"the remote does not have them, and nothing is under way: send them again")
	flags.StringSliceVar(&f.packets, "packet", nil,
		"a credit in doubt that has no letter any more, as rain/17; may be given often")
	flags.StringVar(&f.asked, "asked", "",
		"when the remote was looked at, as 2026-02-17T21:30:00Z (required with --not-booked)")
	flags.StringVar(&f.who.By, "by", "", "who found it out; kept with the letter (required)")
	flags.StringVar(&f.who.Why, "why", "", "how; kept with the letter (required)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the references and amounts only, write nothing")
	flags.DurationVar(&f.patience, "patience", time.Minute,
		"how long to try again while the remote or the ledger is out of reach")
	return cmd
}

func (f *confirmFlags) check(cmd *cobra.Command, ids []string) error {
	see := "(see `" + cmd.CommandPath() + " --help`)"
	switch {
	case len(ids)+len(f.packets) == 0:
		return app.Usage("say which letters, by their ids, or which packets: each of them was looked up at the remote %s",
			see)
	case f.booked == f.notBooked:
		return app.Usage("say either --booked or --not-booked %s", see)
	case f.who.By == "" || f.who.Why == "":
		return app.Usage("--by and --why are required: who found it out, and how %s", see)
	case f.notBooked == (f.asked == ""):
		return app.Usage("--asked goes with --not-booked, and only with that: when the remote was looked at %s", see)
	case f.patience < 0:
		return app.Usage("--patience: give 0 or more")
	}
	for _, id := range ids {
		sink, _, _, err := deadletter.ParseID(id)
		if err != nil {
			return app.Usage("%w", err)
		}
		if sink != configs.SinkBalance {
			return app.Usage("letter %.120q is of sink %s: only those of sink %s are about credits; requeue or drop it", id,
				sink, configs.SinkBalance)
		}
	}
	return nil
}

// confirmation returns the confirmation that the flags describe, as it is kept with the letters.
func (f *confirmFlags) confirmation(letters []string) (o app.Confirmation, err error) {
	o = app.Confirmation{Letters: letters, Decision: f.who, Patience: f.patience, DryRun: f.dryRun}
	for _, text := range f.packets {
		p, err := parsePacket(text)
		if err != nil {
			return o, err
		}
		o.Packets = append(o.Packets, p)
	}
	if f.booked {
		o.Word, o.Why = app.Word{Verdict: remote.Done}, "booked at the remote: "+f.who.Why
		return o, nil
	}
	at, err := parseTime("--asked", f.asked)
	if err == nil && at.After(time.Now()) {
		err = app.Usage("--asked %s: that is still to come", f.asked)
	}
	o.Word, o.Why = app.Word{Verdict: remote.NotSent, At: at}, "not booked at the remote, asked at "+f.asked+": "+
		f.who.Why
	return o, err
}

func writeConfirmed(w io.Writer, c *app.Confirmed) error {
	for _, x := range c.Credits {
		if _, err := fmt.Fprintf(w, "%s: credit %s, %s to account %s\n", x.Letter, x.Reference,
			money.Text(x.Amount, x.Currency), x.Account); err != nil {
			return err
		}
	}
	for _, id := range c.Gone {
		if _, err := fmt.Fprintf(w, "%s: there is no such letter any more\n", id); err != nil {
			return err
		}
	}
	if c.Report == nil {
		return nil
	}
	return c.Write(w)
}

// parsePacket reads CAMPAIGN/PACKET.
func parsePacket(text string) (app.PacketID, error) {
	id, number, _ := strings.Cut(text, "/")
	packet, err := strconv.ParseInt(number, 10, 64)
	if hongbao.CheckCampaignID(id) != nil || err != nil || packet < 1 {
		return app.PacketID{}, app.Usage("--packet %.120q: want CAMPAIGN/PACKET, as rain/17", text)
	}
	return app.PacketID{Campaign: id, Packet: packet}, nil
}
