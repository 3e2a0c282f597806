package cli

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
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// confirmFlags has what a person found out at the remote, and the person's name.
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
		Short: "Record what a person found out at the remote about credits in doubt, and resolve their dead letters",
		Long: "Records what a person found out from the owners of the remote about letters of sink balance, where\n" +
			"settlement.kind is remote.\n\n" +
			"--booked: the remote has the credit under its reference, as it was requested. The command sends\n" +
			"nothing, and the ledger records the credit.\n" +
			"--not-booked: at the time --asked the remote did not have the credit, and no request could still\n" +
			"arrive. The command sends the credit again, once. A request after that time is in doubt again, so\n" +
			"you may run the same command twice.\n\n" +
			"The letters then count as resolved; Redis stores them with --by and --why. Begin with --dry-run: it\n" +
			"prints the references to ask about. If the remote or the ledger itself can answer, their answer\n" +
			"takes precedence over the person's.\n\n" +
			"If the letter of a credit was dropped, or Redis has lost its event, name the credit with --packet,\n" +
			"as spring-rain/17. `hongbao campaign refund` waits for such a credit and names it. With --not-booked\n" +
			"the ledger removes such a credit, and the command does not send it. With --booked and a queryable\n" +
			"remote, the command queries the remote. It records what the remote has booked, even if the ledger\n" +
			"did not know that the credit is in doubt.",
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
				report, err := deliveries.Of(a).Confirm(cmd.Context(), o)
				if report == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, report, func(w io.Writer) error { return writeConfirmed(w, report, &f) }), err)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.booked, "booked", false, "the remote has the credits as they were requested")
	flags.BoolVar(&f.notBooked, "not-booked", false,
		"the remote does not have the credits, and no request for them is running: send them again")
	flags.StringSliceVar(&f.packets, "packet", nil,
		"a credit without a waiting dead letter, as CAMPAIGN/PACKET such as rain/17; may be repeated")
	flags.StringVar(&f.asked, "asked", "",
		"the time when the person checked the remote, such as 2026-02-17T21:30:00Z (required with --not-booked)")
	flags.StringVar(&f.who.By, "by", "", "the person who found out the facts; stored with the letter (required)")
	flags.StringVar(&f.who.Why, "why", "", "how the person found out the facts; stored with the letter (required)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print the references and amounts; change nothing")
	flags.DurationVar(&f.patience, "patience", time.Minute,
		"how long to try again while the remote or the ledger does not answer")
	return cmd
}

func (f *confirmFlags) check(cmd *cobra.Command, ids []string) error {
	see := "(see `" + cmd.CommandPath() + " --help`)"
	switch {
	case len(ids)+len(f.packets) == 0:
		return app.Usage("name the letters by their ids, or the packets: look up each of them at the remote first %s",
			see)
	case f.booked == f.notBooked:
		return app.Usage("give either --booked or --not-booked %s", see)
	case f.who.By == "" || f.who.Why == "":
		return app.Usage("--by and --why are required: the person who found it out, and how %s", see)
	case f.notBooked == (f.asked == ""):
		return app.Usage("--asked is required with --not-booked, and not allowed otherwise: the time when the remote was checked %s", see)
	case f.patience < 0:
		return app.Usage("--patience: give 0 or more")
	}
	for _, id := range ids {
		sink, _, _, err := model.ParseLetterID(id)
		if err != nil {
			return app.Usage("%w", err)
		}
		if sink != configs.SinkBalance {
			return app.Usage("letter %.120q is of sink %s: only letters of sink %s are about credits; requeue or drop it", id,
				sink, configs.SinkBalance)
		}
	}
	return nil
}

// confirmation returns the confirmation that is stored with the letters, built from the flags.
func (f *confirmFlags) confirmation(letters []string) (o deliveries.Confirmation, err error) {
	o = deliveries.Confirmation{Letters: letters, Decision: f.who, Patience: f.patience, DryRun: f.dryRun}
	for _, text := range f.packets {
		p, err := parsePacket(text)
		if err != nil {
			return o, err
		}
		o.Packets = append(o.Packets, p)
	}
	if f.booked {
		o.Word, o.Why = app.Booked(), "booked at the remote: "+f.who.Why
		return o, nil
	}
	at, err := parseTime("--asked", f.asked)
	if err == nil && at.After(time.Now()) {
		err = app.Usage("--asked %s: this time is in the future", f.asked)
	}
	o.Word, o.Why = app.NotBooked(at), "not booked at the remote, asked at "+f.asked+": "+
		f.who.Why
	return o, err
}

// writeConfirmed prints the credits and what happened to them. In a dry run it prints from when an inquiry counts.
func writeConfirmed(w io.Writer, c *deliveries.Confirmed, f *confirmFlags) error {
	for _, x := range c.Credits {
		if _, err := fmt.Fprintf(w, "%s: credit %s, %s to account %s\n", x.Letter, x.Reference,
			money.Text(x.Amount, x.Currency), x.Account); err != nil {
			return err
		}
		if f.dryRun && !x.AskFrom.IsZero() {
			if _, err := fmt.Fprintf(w, "  for --not-booked: ask after %s\n", x.AskFrom.Format(time.RFC3339Nano)); err != nil {
				return err
			}
		}
	}
	for _, id := range c.Gone {
		if _, err := fmt.Fprintf(w, "%s: there is no such letter\n", id); err != nil {
			return err
		}
	}
	if c.LetterReport == nil {
		return nil
	}
	if c.DryRun {
		return c.Write(w)
	}
	what := "Credits sent again once"
	if f.booked {
		what = "Nothing was sent. Credits recorded as booked"
	}
	if _, err := fmt.Fprintf(w, "%s: %d of %d.\n", what, c.Resolved, c.Matched); err != nil {
		return err
	}
	return c.WriteRest(w)
}

// parsePacket reads CAMPAIGN/PACKET.
func parsePacket(text string) (deliveries.PacketID, error) {
	id, number, _ := strings.Cut(text, "/")
	packet, err := strconv.ParseInt(number, 10, 64)
	if hongbao.CheckCampaignID(id) != nil || err != nil || packet < 1 {
		return deliveries.PacketID{}, app.Usage("--packet %.120q: want CAMPAIGN/PACKET, as rain/17", text)
	}
	return deliveries.PacketID{Campaign: id, Packet: packet}, nil
}
