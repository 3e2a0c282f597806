package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func claimCmd() *cobra.Command {
	return family("claim", "Settle claims: batches of grants of which nobody knows whether they are in the topic",
		"A claim is a batch of grants on its way to the topic. Workers end claims by themselves. If the log can no longer show\n"+
			"whether the batch arrived, a person decides. Until then its grants are dead letters of class conflict.",
		claimListCmd(), dangerous(claimSettleCmd()))
}

func claimListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the open claims: their events, and where in the topic to look for them",
		Example: "  hongbao claim list", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				list, err := deliveries.Of(a).ListClaims(cmd.Context())
				if err != nil {
					return err
				}
				answer := struct {
					Claims []deliveries.OpenClaim `json:"claims"`
				}{list}
				return printAnswer(cmd, answer, func(w io.Writer) error { return writeClaims(w, list) })
			})
		},
	}
}

func writeClaims(w io.Writer, list []deliveries.OpenClaim) error {
	t := newColumns(w)
	fmt.Fprintln(t, "CLAIM\tGRANTS\tEVENTS\tSENT\tTOPIC\tPARTITION\tFROM OFFSET\tOWNER\tUNTIL\tSETTLE FROM")
	for i := range list {
		c := &list[i]
		events := c.Events[0]
		if n := len(c.Events); n > 1 {
			events += fmt.Sprintf(" and %d runs", n-1)
		}
		topic, partition, offset, sent, from := "-", "-", "-", "-", "-"
		if c.Sent != nil {
			topic, partition, offset = string(c.Topic), fmt.Sprint(*c.Partition), fmt.Sprint(*c.Offset)
			sent, from = c.Sent.Format(time.RFC3339), c.SettleFrom.Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.Grants, events, sent, topic, partition, offset,
			c.Owner, c.Until.Format(time.RFC3339), from)
	}
	if len(list) > 0 {
		fmt.Fprintln(t, "Workers settle claims when Kafka is back. Decide only a claim whose grants became dead letters.")
	}
	return t.Flush()
}

func claimSettleCmd() *cobra.Command {
	var o deliveries.ClaimDecision
	as := ""
	cmd := &cobra.Command{
		Use: "settle CLAIM", Short: "Decide whether the batch of a claim is in the topic, and end the claim",
		Long: `Records what a person found in the topic, from the offset that claim list prints.

--as published: the topic has its grants. They count as published, and nothing is sent. If the topic has only some of
them, give published too, and then run ` + "`hongbao replay NAME --to kafka --missing`" + `, which sends the rest.
--as unpublished: the topic has none of its grants. They are sent again.

The command also requeues the dead letters of these grants. It refuses a claim that a worker may still be sending. It
also refuses a claim that is younger than publisher.producer_expiration: until then workers can settle it. The journal
keeps --by and --why.`,
		Example: "  hongbao claim settle kafka/0/w1.5f0c.7 --as published --by ann --why \"all 20 are at offsets 810 to 829\"",
		Args:    exactly(1, "one CLAIM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if as != "published" && as != "unpublished" {
				return app.Usage("--as %.40q: want published or unpublished (see `%s --help`)", as, cmd.CommandPath())
			}
			if err := checkDecision(cmd, &o.Decision); err != nil {
				return err
			}
			o.ID, o.Published = args[0], as == "published"
			return with(cmd, app.Needs{}, func(a *app.App) error {
				out, err := deliveries.Of(a).SettleClaim(cmd.Context(), o)
				if out == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, out, func(w io.Writer) error { return writeSettled(w, out, as) }), err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&as, "as", "", "whether the batch is in the topic: published or unpublished (required)")
	addDecision(flags, &o.Decision, "; stored in the journal (required)")
	flags.DurationVar(&o.Patience, "patience", time.Minute, "how long to try again while Kafka does not answer")
	return cmd
}

func writeSettled(w io.Writer, c *deliveries.SettledClaim, as string) error {
	if _, err := fmt.Fprintf(w, "claim %s is settled: its %d grants are %s\n", c.Claim, c.Grants, as); err != nil {
		return err
	}
	if c.Letters == nil {
		return nil
	}
	return c.Letters.Write(w)
}
