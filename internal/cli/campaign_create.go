package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// specFile is a specification on the command line: a file, and a window that begins now instead of the file's.
type specFile struct{ openFor time.Duration }

func (f *specFile) addTo(flags *pflag.FlagSet) {
	flags.DurationVar(&f.openFor, "open-for", 0, "open the window now, for this duration such as 1h; overrides the window in FILE, which may have none")
}

// read reads and checks a specification from a file, or from standard input for "-".
func (f *specFile) read(cmd *cobra.Command, path string) (c hongbao.Campaign, err error) {
	reader := campaign.Read
	if cmd.Flags().Changed("open-for") {
		if f.openFor < time.Second {
			return c, app.Usage("--open-for %s: give 1s or more (see `%s --help`)", f.openFor, cmd.CommandPath())
		}
		reader = func(r io.Reader) (hongbao.Campaign, error) {
			from := time.Now().UTC().Truncate(time.Second)
			return campaign.ReadWindow(r, from, from.Add(f.openFor.Truncate(time.Second)))
		}
	}
	if c, err = readFile(cmd, path, reader); err != nil {
		return c, app.Usage("specification %s: %w", path, err)
	}
	return c, nil
}

func planCmd() *cobra.Command {
	var file specFile
	cmd := &cobra.Command{
		Use: "plan FILE", Short: "Check a specification and show a possible spread of its packets, without storing anything",
		Long: "Checks a specification (YAML or JSON, - for standard input) and prints all of its mistakes at once.\n" +
			"The command also shows the limits, with the default one, and how one draw with a random seed spreads the\n" +
			"amounts. `hongbao campaign create` draws another seed, and prints its hash.",
		Example: "  hongbao campaign plan configs/campaign.yaml", Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := file.read(cmd, args[0])
			if err != nil {
				return err
			}
			if err := campaign.Validate(c, time.Now()); err != nil {
				return fmt.Errorf("specification %s: %w", args[0], err)
			}
			if _, err := readCodes(args[0], &c); err != nil {
				return err
			}
			plan, err := campaign.NewPlan(c, campaign.NewSeed())
			if err != nil {
				return err
			}
			out := struct {
				Spec    hongbao.Campaign `json:"spec"`
				Amounts []money.Bin      `json:"amounts"`
			}{c, money.Histogram(plan.Amounts)}
			return printAnswer(cmd, out, func(w io.Writer) error { return writePlan(w, &c, out.Amounts) })
		},
	}
	file.addTo(cmd.Flags())
	return cmd
}

func writePlan(w io.Writer, c *hongbao.Campaign, amounts []money.Bin) error {
	zone, sum := zoneOf(c.TimeZone), ""
	if c.Currency != "" {
		sum = ", " + money.Text(c.Total, c.Currency)
	}
	fmt.Fprintf(w, "campaign %s (%s), %s: %s packets%s\nopen from %s to %s (%s)\n", c.ID, c.Name, c.Kind, money.Count(c.Packets), sum,
		c.From.In(zone).Format(time.RFC3339), c.To.In(zone).Format(time.RFC3339), zone)
	for _, l := range c.Limits {
		fmt.Fprintf(w, "limit: %s\n", limitText(l))
	}
	if c.Currency == "" {
		return nil
	}
	fmt.Fprintln(w)
	return money.WriteHistogram(w, amounts, c.Currency)
}

// limitText formats a limit: "1 by user, per campaign".
func limitText(l hongbao.Limit) string {
	return fmt.Sprintf("%s by %s, per %s", money.Count(l.Max), l.By, l.Per)
}

func createCmd() *cobra.Command {
	var file specFile
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Create a campaign in the ledger: fund it, draw its seed, publish its hash",
		Long: "Creates the campaign of a specification in the ledger. It funds the pool from the sponsor's account,\n" +
			"draws a secret seed, and prints the hash that commits to both. A repeat with the same specification\n" +
			"changes nothing and prints the same hash. So does a repeat with --open-for: the first window stays. The\n" +
			"command also draws the codes of coupons, or reads them from their file, and stores them. If it was\n" +
			"killed, run it again: it continues.",
		Example: "  hongbao campaign create configs/campaign.yaml", Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := file.read(cmd, args[0])
			if err != nil {
				return err
			}
			codes, err := readCodes(args[0], &c)
			if err != nil {
				return err
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				in := ops.CampaignCreate{Spec: c, Codes: codes}
				out, err := o.CreateCampaign(cmd.Context(), in)
				stays := err != nil && cmd.Flags().Changed("open-for") && !hongbao.IsOutage(err) && keepWindow(cmd.Context(), o, &in.Spec)
				if stays {
					out, err = o.CreateCampaign(cmd.Context(), in)
				}
				if err != nil {
					return fmt.Errorf("specification %s: %w", args[0], err)
				}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeCreated(w, out, &in.Spec, stays) })
			})
		},
	}
	file.addTo(cmd.Flags())
	return cmd
}

// keepWindow gives a specification the window of the campaign that exists, and reports whether both are then the same.
func keepWindow(ctx context.Context, o ops.Operations, c *hongbao.Campaign) bool {
	has, err := o.ShowCampaign(ctx, c.ID)
	if err != nil {
		return false
	}
	c.From, c.To = has.Spec.From, has.Spec.To
	return bytes.Equal(campaign.Canonical(*c), campaign.Canonical(has.Spec))
}

// writeCreated prints the answer of create. stays says that the campaign exists with a window of its own.
func writeCreated(w io.Writer, out *campaigns.Created, c *hongbao.Campaign, stays bool) error {
	how := "created and funded"
	switch {
	case out.State == model.MoneyRefunded:
		how = "existed already, and is refunded"
	case !out.Created:
		how = "existed already"
	}
	fmt.Fprintf(w, "campaign %s %s\n", out.Campaign, how)
	if stays {
		zone := zoneOf(c.TimeZone)
		fmt.Fprintf(w, "its window stays: %s to %s (%s). For another window, create a campaign with another id\n",
			c.From.In(zone).Format(time.DateTime), c.To.In(zone).Format(time.DateTime), zone)
	}
	_, err := fmt.Fprintf(w, "plan hash %s (publish it before the start)\nnext: %s\n", out.Hash, out.Next)
	return err
}
