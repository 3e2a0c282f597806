package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/money"
)

func campaignCmd() *cobra.Command {
	return family("campaign", "Plan, create, load, pause, close, refund and look at campaigns", "",
		planCmd(), createCmd(), loadCmd(), pauseCmd(), resumeCmd(), showCmd(), listCmd(),
		closeCmd(), refundCmd(), refundLostCmd(), revealCmd(), verifyCmd())
}

// readSpec reads and checks a specification from a file, or from standard input for "-".
func readSpec(cmd *cobra.Command, path string) (c hongbao.Campaign, err error) {
	if c, err = readFile(cmd, path, campaign.Read); err != nil {
		return c, usage("specification %s: %w", path, err)
	}
	return c, nil
}

func planCmd() *cobra.Command {
	return &cobra.Command{
		Use: "plan FILE", Short: "Check a specification and show how its packets could be spread; nothing is stored",
		Long: "Checks a specification (YAML or JSON, - for standard input), names everything that is wrong at once, and shows the spread\n" +
			"of amounts of one draw with a seed of its own. `hongbao campaign create` takes another seed, and publishes its hash.",
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
				Amounts []bin            `json:"amounts"`
			}{c, histogram(plan.Amounts)}
			return printAnswer(cmd, out, func(w io.Writer) error {
				fmt.Fprintf(w, "campaign %s (%s), %s: %d packets, %s\nopen from %s to %s (%s)\n\n", c.ID, c.Name, c.Kind, c.Packets,
					money.Text(c.Total, c.Currency), c.From.Format(time.RFC3339), c.To.Format(time.RFC3339), c.TimeZone)
				return writeHistogram(w, out.Amounts, c.Currency)
			})
		},
	}
}

func createCmd() *cobra.Command {
	return &cobra.Command{
		Use: "create FILE", Short: "Create a campaign in the ledger: fund it, draw its seed, publish its hash",
		Long: "Creates the campaign of a specification in the ledger: its pool is funded from the sponsor's account, a secret seed is drawn,\n" +
			"and the hash that commits to both is printed. The same specification again changes nothing and prints the same hash.\n" +
			"The codes of coupons are drawn, or read from their file, and stored beside it; killed on the way, run it again to go on.",
		Example: "  hongbao campaign create configs/campaign.yaml", Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readSpec(cmd, args[0])
			if err != nil {
				return err
			}
			codes, err := readCodes(args[0], &c)
			if err != nil {
				return err
			}
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				stored, isNew, err := d.create(cmd.Context(), c)
				if err != nil {
					return fmt.Errorf("specification %s: %w", args[0], err)
				}
				if err := d.createCodes(cmd.Context(), &c, codes); err != nil {
					return err
				}
				d.warnOfDurability(cmd.Context(), c.Durability)
				how, next := "created and funded", "hongbao campaign load "+c.ID
				if !isNew {
					how = "was there already"
				}
				if stored.State == ledger.StateRefunded {
					how, next = "was there already, and is refunded", "another id, if it is to rain again"
				}
				out := struct {
					Campaign string               `json:"campaign"`
					Created  bool                 `json:"created"` // false: it was there already
					State    ledger.CampaignState `json:"state"`
					Hash     string               `json:"plan_hash"`
					Next     string               `json:"next"`
				}{c.ID, isNew, stored.State, stored.Hash, next}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "campaign %s %s\nplan hash %s (publish it before the start)\nnext: %s\n", c.ID, how, stored.Hash, next)
					return err
				})
			})
		},
	}
}

// create puts the campaign into the ledger. The same specification again gives what is there, with its first seed.
func (d *deps) create(ctx context.Context, c hongbao.Campaign) (stored ledger.StoredCampaign, isNew bool, err error) {
	for range 2 {
		has, found, err := d.ledger.Campaign(ctx, c.ID)
		if err != nil {
			return has, false, err
		}
		if found {
			if string(has.Canonical) != string(campaign.Canonical(c)) {
				return has, false, hongbao.Errorf(hongbao.Conflict, "campaign %s is in the ledger with another specification; nothing was changed. "+
					"`hongbao campaign show %s` prints it; take another id for this one", c.ID, c.ID)
			}
			return has, false, nil
		}
		if err := campaign.Validate(c, time.Now()); err != nil {
			return has, false, err
		}
		seed := campaign.NewSeed()
		stored, err = d.ledger.CreateCampaign(ctx, ledger.Campaign{
			Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: campaign.Commit(c, seed),
		})
		if !errors.Is(err, ledger.ErrCampaignExists) { // else somebody created it under our hands: look again
			return stored, err == nil, err
		}
	}
	return stored, false, hongbao.Errorf(hongbao.Transient, "create campaign %s: another process is creating it; run it again", c.ID)
}

func loadCmd() *cobra.Command {
	return &cobra.Command{
		Use: "load ID", Short: "Load a campaign's packets into Redis and open it; killed at any point, it goes on where it was",
		Example: "  hongbao campaign load spring-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, needs{redis: true, ledger: true}, func(d *deps) error {
				c, err := d.load(cmd.Context(), args[0], newBar)
				if err != nil {
					return err
				}
				out := struct {
					Campaign string    `json:"campaign"`
					Packets  int64     `json:"packets"`
					From     time.Time `json:"from"`
					To       time.Time `json:"to"`
				}{c.ID, c.Packets, c.From.UTC(), c.To.UTC()}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "campaign %s loaded: %d packets, grabs from %s to %s\n", c.ID, c.Packets,
						out.From.Format(time.RFC3339), out.To.Format(time.RFC3339))
					return err
				})
			})
		},
	}
}

// load plans a campaign of the ledger again, checks the hash, and loads it.
func (d *deps) load(ctx context.Context, id string, show func(what string, total int64) bar) (hongbao.Campaign, error) {
	c, err := d.campaign(ctx, id)
	if err != nil {
		return c.Spec, err
	}
	if c.State == ledger.StateRefunded { // else it would open again, and answer "granted" for what nobody pays
		return c.Spec, hongbao.Errorf(hongbao.Permanent, "campaign %s was refunded: it can't be loaded again; create one with another id", id)
	}
	if err := campaign.Verify(c.Spec, c.Seed, c.Hash); err != nil {
		return c.Spec, err
	}
	plan, err := campaign.NewPlan(c.Spec, c.Seed)
	if err != nil {
		return c.Spec, err
	}
	if err := d.checkRedis(ctx, c.Spec.Durability); err != nil {
		return c.Spec, err
	}
	store, err := d.store()
	if err != nil {
		return c.Spec, err
	}
	if err := d.notLost(ctx, store, id); err != nil {
		return c.Spec, err
	}
	b := show("loading "+id, c.Spec.Packets)
	defer b.end()
	err = store.Load(ctx, c.Spec, plan, c.Hash, b.set)
	return c.Spec, err
}

// notLost refuses to load a campaign that Redis has lost: its packets would be dealt a second time, to users whom nobody would pay.
func (d *deps) notLost(ctx context.Context, store *campaign.Store, id string) error {
	s, found, err := store.Status(ctx, id)
	if err != nil || found && s.State != campaign.Loading {
		return err
	}
	held, err := d.ledger.Held(ctx, id)
	if err != nil || held.Granted == 0 {
		return err
	}
	return hongbao.Errorf(hongbao.Conflict, "campaign %s: the ledger has paid %d of its packets, and Redis has lost the campaign; a load would deal these packets "+
		"again, so nothing was loaded. Bring Redis back from its append-only file or a replica (docs/operations.md); if that can't be, "+
		"`hongbao campaign refund-lost %s` ends it from the ledger", id, held.Granted, id)
}

func pauseCmd() *cobra.Command {
	return stateCmd("pause ID", "Make a campaign answer paused until it is resumed", "paused",
		func(ctx context.Context, s *campaign.Store, id string) error { return s.Pause(ctx, id) })
}

func resumeCmd() *cobra.Command {
	return stateCmd("resume ID", "Open a paused campaign again", "open",
		func(ctx context.Context, s *campaign.Store, id string) error { return s.Resume(ctx, id) })
}

func stateCmd(use, short, state string, do func(context.Context, *campaign.Store, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: oneCampaign,
		Example: "  hongbao campaign " + use[:len(use)-2] + "spring-rain",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, needs{redis: true}, func(d *deps) error {
				store, err := d.store()
				if err != nil {
					return err
				}
				if err := do(cmd.Context(), store, args[0]); err != nil {
					return err
				}
				out := struct {
					Campaign string `json:"campaign"`
					State    string `json:"state"`
				}{args[0], state}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "campaign %s is %s\n", out.Campaign, state)
					return err
				})
			})
		},
	}
}

// shown is what `campaign show` tells. The seed is not in it: it is secret until the close.
type shown struct {
	Spec   hongbao.Campaign `json:"spec"`
	Hash   string           `json:"plan_hash"`
	Ledger struct {
		State    ledger.CampaignState `json:"state"`
		Funded   hongbao.Amount       `json:"funded"`
		Granted  hongbao.Amount       `json:"granted"`
		Refunded hongbao.Amount       `json:"refunded"`
		// Codes is how many packets have a code: all, once the campaign is created to the end.
		Codes int64 `json:"codes,omitempty"`
	} `json:"ledger"`
	Redis *campaign.Status `json:"redis"`
}

func showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Print a campaign as JSON: its specification, its hash, how it stands in the ledger and in Redis",
		Example: "  hongbao campaign show spring-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, needs{redis: true, ledger: true}, func(d *deps) error {
				c, err := d.campaign(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				out := shown{Spec: c.Spec, Hash: c.Hash}
				out.Ledger.State, out.Ledger.Funded, out.Ledger.Granted, out.Ledger.Refunded = c.State, c.Funded, c.Granted, c.Refunded
				if c.Spec.Codes != nil {
					if out.Ledger.Codes, err = d.ledger.CodesStored(cmd.Context(), args[0]); err != nil {
						return err
					}
				}
				store, err := d.store()
				if err != nil {
					return err
				}
				if status, ok, err := store.Status(cmd.Context(), args[0]); err != nil {
					return err
				} else if ok {
					out.Redis = &status
				}
				return printJSON(cmd, out)
			})
		},
	}
}

// listedCampaign is a campaign as `campaign list` tells of it.
type listedCampaign struct {
	ID       string               `json:"id"`
	Kind     hongbao.Kind         `json:"kind"`
	Packets  int64                `json:"packets"`
	Currency string               `json:"currency,omitempty"`
	Funded   hongbao.Amount       `json:"funded_amount"`
	Granted  hongbao.Amount       `json:"granted_amount"`
	Refunded hongbao.Amount       `json:"refunded_amount"`
	State    ledger.CampaignState `json:"state"`
	From     time.Time            `json:"from"`
	To       time.Time            `json:"to"`
	Codes    string               `json:"codes"`
}

func listCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the campaigns of the ledger", Example: "  hongbao campaign list", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{ledger: true}, func(d *deps) error {
				out := struct {
					Campaigns []listedCampaign `json:"campaigns"`
				}{[]listedCampaign{}}
				const page = 500
				for after := ""; ; {
					list, err := d.ledger.Campaigns(cmd.Context(), after, page)
					if err != nil {
						return err
					}
					for _, c := range list {
						s := &c.Spec
						out.Campaigns = append(out.Campaigns, listedCampaign{s.ID, s.Kind, s.Packets, s.Currency, c.Funded, c.Granted, c.Refunded, c.State,
							s.From.UTC(), s.To.UTC(), codesFrom(s)})
						after = s.ID
					}
					if len(list) < page {
						return printAnswer(cmd, out, func(w io.Writer) error { return writeCampaigns(w, out.Campaigns) })
					}
				}
			})
		},
	}
}

func writeCampaigns(w io.Writer, list []listedCampaign) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tKIND\tPACKETS\tFUNDED\tGRANTED\tREFUNDED\tSTATE\tFROM\tTO\tCODES")
	for i := range list {
		c := &list[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.Kind, c.Packets, money.Text(c.Funded, c.Currency),
			money.Text(c.Granted, c.Currency), money.Text(c.Refunded, c.Currency), c.State, c.From.Format(time.RFC3339), c.To.Format(time.RFC3339), c.Codes)
	}
	return t.Flush()
}
