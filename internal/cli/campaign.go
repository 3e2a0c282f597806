package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func campaignCmd() *cobra.Command {
	return family("campaign", "Plan, create, load, pause, close, refund and show campaigns", "",
		planCmd(), createCmd(), loadCmd(), dangerous(topUpCmd()), pauseCmd(), resumeCmd(), showCmd(), listCmd(), campaignWatchCmd(), dangerous(cancelCmd()),
		dangerous(closeCmd()), dangerous(refundCmd()), dangerous(refundLostCmd()), dangerous(revealCmd()), verifyCmd())
}

// readSpec reads and checks a specification from a file, or from standard input for "-".
func readSpec(cmd *cobra.Command, path string) (c hongbao.Campaign, err error) {
	if c, err = readFile(cmd, path, campaign.Read); err != nil {
		return c, app.Usage("specification %s: %w", path, err)
	}
	return c, nil
}

func planCmd() *cobra.Command {
	return &cobra.Command{
		Use: "plan FILE", Short: "Check a specification and show a possible spread of its packets, without storing anything",
		Long: "Checks a specification (YAML or JSON, - for standard input) and prints all of its mistakes at once.\n" +
			"The command also shows how one draw with a random seed spreads the amounts. `hongbao campaign\n" +
			"create` draws another seed, and prints its hash.",
		Example: "  hongbao campaign plan configs/campaign.yaml", Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readSpec(cmd, args[0])
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
			return printAnswer(cmd, out, func(w io.Writer) error {
				zone, err := time.LoadLocation(c.TimeZone)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "campaign %s (%s), %s: %s packets, %s\nopen from %s to %s (%s)\n\n", c.ID, c.Name, c.Kind, money.Count(c.Packets),
					money.Text(c.Total, c.Currency), c.From.In(zone).Format(time.RFC3339), c.To.In(zone).Format(time.RFC3339),
					c.TimeZone)
				return money.WriteHistogram(w, out.Amounts, c.Currency)
			})
		},
	}
}

func createCmd() *cobra.Command {
	var openFor time.Duration
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Create a campaign in the ledger: fund it, draw its seed, publish its hash",
		Long: "Creates the campaign of a specification in the ledger. It funds the pool from the sponsor's account,\n" +
			"draws a secret seed, and prints the hash that commits to both. A repeat with the same specification\n" +
			"changes nothing and prints the same hash. The command also draws the codes of coupons, or reads them\n" +
			"from their file, and stores them. If it was killed, run it again: it continues.",
		Example: "  hongbao campaign create configs/campaign.yaml", Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readSpec(cmd, args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("open-for") {
				if openFor < time.Second {
					return app.Usage("--open-for %s: give 1s or more (see `%s --help`)", openFor, cmd.CommandPath())
				}
				c.From = time.Now().UTC().Truncate(time.Second)
				c.To = c.From.Add(openFor.Truncate(time.Second))
			}
			codes, err := readCodes(args[0], &c)
			if err != nil {
				return err
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				out, err := o.CreateCampaign(cmd.Context(), ops.CampaignCreate{Spec: c, Codes: codes})
				if err != nil {
					return fmt.Errorf("specification %s: %w", args[0], err)
				}
				how := "created and funded"
				switch {
				case out.State == model.MoneyRefunded:
					how = "existed already, and is refunded"
				case !out.Created:
					how = "existed already"
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "campaign %s %s\nplan hash %s (publish it before the start)\nnext: %s\n", c.ID, how,
						out.Hash, out.Next)
					return err
				})
			})
		},
	}
	cmd.Flags().DurationVar(&openFor, "open-for", 0, "open the window now, for this duration such as 1h; overrides the window in FILE")
	return cmd
}

func loadCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "load CAMPAIGN",
		Short:   "Load a campaign's packets into Redis and open the campaign; after a kill, run the command again",
		Example: "  hongbao campaign load spring-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				out, err := o.LoadCampaign(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					how := "loaded"
					if out.Already {
						how = "was loaded already"
					}
					zone := zoneOf(out.TimeZone)
					_, err := fmt.Fprintf(w, "campaign %s %s: %s packets, grabs from %s to %s (%s)\n", out.Campaign, how,
						money.Count(out.Packets), out.From.In(zone).Format(time.RFC3339), out.To.In(zone).Format(time.RFC3339), zone)
					return err
				})
			})
		},
	}
}

func pauseCmd() *cobra.Command {
	return stateCmd("pause", "Pause a campaign: grabs get the answer paused until it is resumed",
		ops.Operations.PauseCampaign)
}

func resumeCmd() *cobra.Command {
	return stateCmd("resume", "Resume a paused campaign",
		ops.Operations.ResumeCampaign)
}

func stateCmd(name, short string,
	do func(o ops.Operations, ctx context.Context, in ops.CampaignPause) (ops.CampaignState, error)) *cobra.Command {
	why := ""
	cmd := &cobra.Command{
		Use: name + " CAMPAIGN", Short: short, Args: oneCampaign,
		Long: "The command works while the ledger is down. Within a second after the ledger answers again, a worker\n" +
			"copies the decision to it. If Redis loses the decision, a worker restores it from the ledger.",
		Example: "  hongbao campaign " + name + " spring-rain --why \"the shop is closed\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if why == "" {
				return app.Usage("--why is required: the reason is kept (see `%s --help`)", cmd.CommandPath())
			}
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				out, err := do(o, cmd.Context(), ops.CampaignPause{Campaign: args[0], Why: why})
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					p := out.Pause
					switch {
					case !out.Changed && p != nil:
						return writeKept(w, "campaign "+out.Campaign, "", p.By, p.Why, p.At)
					case !out.Changed:
						_, err := fmt.Fprintf(w, "campaign %s is %s already: nothing was changed\n", out.Campaign, out.State)
						return err
					}
					_, err := fmt.Fprintf(w, "campaign %s is %s\n", out.Campaign, out.State)
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "the reason; stored in Redis and in the ledger (required)")
	return cmd
}

func listCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the campaigns of the ledger", Example: "  hongbao campaign list",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				list, err := o.ListCampaigns(cmd.Context())
				if err != nil {
					return err
				}
				out := struct {
					Campaigns []model.Campaign `json:"campaigns"`
				}{list}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeCampaigns(w, list) })
			})
		},
	}
}

func writeCampaigns(w io.Writer, list []model.Campaign) error {
	t := newColumns(w)
	fmt.Fprintln(t, "ID\tNAME\tKIND\tPACKETS\tFUNDED\tGRANTED\tREFUNDED\tSTATUS\tFROM\tTO\tCODES")
	for i := range list {
		c := &list[i]
		zone := zoneOf(c.TimeZone)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.Name, c.Kind, money.Count(c.Packets),
			money.Text(c.Funded, c.Currency), money.Text(c.Paid, c.Currency), money.Text(c.Refunded, c.Currency), styled(stateStyle(c.Status), c.Status),
			c.From.In(zone).Format(time.RFC3339), c.To.In(zone).Format(time.RFC3339), cmp.Or(c.Codes, "-"))
	}
	return t.Flush()
}
