package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func whyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "why CAMPAIGN USER", Short: "Say in a sentence whether a user won, was paid and was announced, then the steps",
		Long: "Asks Redis, the ledger and Kafka about one user, and answers the question of a support ticket: won or not,\n" +
			"paid or not, announced or not, and why not. The sentence says so if a server can't be asked; the exit\n" +
			"code is then 5. Times are in the campaign's time zone, with UTC beside them. The answer has no coupon codes.\n" +
			"The journal records each call.",
		Example: "  hongbao why spring-rain u1\n  hongbao why spring-rain u1 --json",
		Args:    exactly(2, "a CAMPAIGN and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := ops.TrailOf{Campaign: args[0], User: args[1]}
			if err := in.Check(); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Either: true}, func(o ops.Operations) error {
				t, err := o.ShowTrail(cmd.Context(), in)
				if err != nil {
					return swapped(cmd, o, in, err)
				}
				out := ops.Explain(t, in.User)
				if err := printAnswer(cmd, out, func(w io.Writer) error { return writeWhy(w, out) }); err != nil {
					return err
				}
				return out.CheckRead()
			})
		},
	}
}

// swapped adds a hint to an error if the user's place has a campaign.
func swapped(cmd *cobra.Command, o ops.Operations, in ops.TrailOf, err error) error {
	if _, other := o.ShowCampaign(cmd.Context(), in.User); other != nil || hongbao.IsOutage(err) {
		return err
	}
	return fmt.Errorf("%w; %s is a campaign: the campaign comes first, as in `hongbao why %s %s`", err, in.User, in.User, in.Campaign)
}

func writeWhy(w io.Writer, y *ops.Why) error {
	zone, err := time.LoadLocation(y.TimeZone)
	if err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "the time zone of campaign %s: %w", y.Campaign, err)
	}
	fmt.Fprintln(w, y.Sentence)
	for i := range y.Grants {
		g := &y.Grants[i]
		if len(y.Grants) > 1 {
			fmt.Fprintf(w, "\n%s\n", g.Sentence)
		}
		t := newColumns(w)
		fmt.Fprintf(t, "\n%s\tUTC\tSTEP\t\n", zone)
		for _, s := range g.Steps {
			local, utc := "-", "-"
			if s.At != nil {
				local, utc = s.At.In(zone).Format(time.DateTime+".000"), s.At.UTC().Format("15:04:05Z")
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", local, utc, s.Step, s.Text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if y.Codes && len(y.Grants) > 0 {
		_, err := fmt.Fprintf(w, "\nThe codes are secret: see `hongbao receipts %s %s`, which needs access to Redis.\n", y.Campaign, y.User)
		return err
	}
	return nil
}
