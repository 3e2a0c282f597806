package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/closing"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/lock"
	"github.com/hongbao-project/hongbao/settlement"
)

// withCloser is with, for what is done to a campaign at its end.
func withCloser(cmd *cobra.Command, id string, do func(*closing.Closer, *settlement.StoredCampaign) error) error {
	return with(cmd, needs{redis: true, ledger: true}, func(d *deps) error {
		c, err := d.campaign(cmd.Context(), id)
		if err != nil {
			return err
		}
		locks, err := d.locks()
		if err != nil {
			return err
		}
		cfg := d.cfg.CloserConfig()
		cfg.Redis, cfg.Space, cfg.Ledger, cfg.Locks, cfg.Log = d.redis, d.space, d.ledger, locks, d.log
		closer, err := closing.New(cfg)
		if err != nil {
			return err
		}
		return do(closer, &c)
	})
}

func (d *deps) locks() (*lock.Locks, error) {
	cfg := d.cfg.LockConfig()
	cfg.Redis, cfg.Space = d.redis, d.space
	return lock.New(cfg)
}

func closeCmd() *cobra.Command {
	early := false
	cmd := &cobra.Command{
		Use: "close ID", Short: "End a campaign for ever: grabs answer ended from now on",
		Long: "Ends a campaign for ever: from now on grabs answer ended, and a repeated grab still gets its receipt. A campaign whose window is\n" +
			"open is refused without --early, so that a mistyped ID ends nothing. No money moves: `hongbao campaign refund` does that.\n" +
			"Run again it prints the same.",
		Example: "  hongbao campaign close spring-rain\n  hongbao campaign close spring-rain --early", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			return withCloser(cmd, id, func(closer *closing.Closer, c *settlement.StoredCampaign) error {
				s, err := closer.Close(cmd.Context(), id, early)
				if err != nil {
					return closeHint(err, id)
				}
				return printStanding(cmd, c, &s)
			})
		},
	}
	cmd.Flags().BoolVar(&early, "early", false, "end it before its window is over")
	return cmd
}

// closeHint says what to do about a campaign that is not where it should be.
func closeHint(err error, id string) error {
	switch {
	case errors.Is(err, shards.ErrNotClosed):
		return fmt.Errorf("%w: `hongbao campaign close %s` ends it first", err, id)
	case errors.Is(err, shards.ErrNotInRedis):
		return fmt.Errorf("%w: `hongbao campaign load %s` brings it there; then close it, and all of its money can go back", err, id)
	}
	return err
}

// printStanding tells how far the end of a campaign is, and what is next.
func printStanding(cmd *cobra.Command, c *settlement.StoredCampaign, s *closing.Standing) error {
	w, id, currency := cmd.OutOrStdout(), c.Spec.ID, c.Spec.Currency
	if s.Close.Kind != "" {
		e := &s.Close
		fmt.Fprintf(w, "campaign %s was closed %s by event %d-%d\ngranted %d packets, %s\nleft %d packets, %s\n", id, e.Time.Format(time.RFC3339),
			e.Shard, e.Seq, e.Close.Granted, money(e.Close.GrantedAmount, currency), e.Close.Left, money(e.Close.LeftAmount, currency))
	}
	if s.Refund != nil {
		return printRefund(cmd, s.Refund)
	}
	if !s.Settled() {
		fmt.Fprintf(w, "settling: group %s has finished shard %d up to event %d, the close is event %d\n", configs.SinkBalance, s.Close.Shard, s.Finished, s.Close.Seq)
	}
	var err error
	switch n := s.Missing(); {
	case n > 0:
		_, err = fmt.Fprintf(w, "%d grants are missing in the ledger: dead letters, or in quarantine\nnext: hongbao audit --campaign %s\n", n, id)
	case n < 0:
		_, err = fmt.Fprintf(w, "the ledger has paid %d grants more than the close tells of\nnext: hongbao audit --campaign %s\n", -n, id)
	default:
		_, err = fmt.Fprintf(w, "next: hongbao campaign refund %s --amount %d\n", id, s.Amount())
	}
	return err
}

func printRefund(cmd *cobra.Command, r *hongbao.Refund) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "campaign %s was refunded %s: %d packets, %s, to sponsor %s\nnext: hongbao campaign reveal %s\n",
		r.Campaign, r.Created.Format(time.RFC3339), r.Packets, money(r.Amount, r.Currency), r.Sponsor, r.Campaign)
	return err
}

func refundCmd() *cobra.Command {
	o := closing.Order{}
	cmd := &cobra.Command{
		Use: "refund ID --amount MINOR-UNITS", Short: "Give what nobody got back to the sponsor, once",
		Long: "Posts the refund of a closed campaign: what was funded and not granted goes back to its sponsor, once, however often this is run\n" +
			"and wherever it is killed. --amount must be exactly that sum in minor units: without it nothing moves, the sum is printed and the\n" +
			"exit code is 2; with another one the exit code is 1. While the ledger does not hold every grant up to the close, nothing moves and\n" +
			"the exit code is 3 (settling): run it again, or give --wait.",
		Example: "  hongbao campaign refund spring-rain\n  hongbao campaign refund spring-rain --amount 250 --wait 1m", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			o.Campaign = id
			if o.Wait < 0 || o.Missing < 0 {
				return usage("--wait %s, --missing %d: give nothing below 0", o.Wait, o.Missing)
			}
			return withCloser(cmd, id, func(closer *closing.Closer, c *settlement.StoredCampaign) error {
				if !cmd.Flags().Changed("amount") {
					s, err := closer.Standing(cmd.Context(), id)
					if err != nil {
						return closeHint(err, id)
					}
					if err := printStanding(cmd, c, &s); err != nil || s.Refund != nil {
						return err
					}
					return usage("nothing was moved: if this is the right campaign, run it again with --amount %d", s.Amount())
				}
				r, err := closer.Refund(cmd.Context(), o)
				if err != nil {
					return closeHint(err, id)
				}
				return printRefund(cmd, &r)
			})
		},
	}
	cmd.Flags().Var((*amountFlag)(&o.Amount), "amount", "the sum to be refunded, in minor units; it must be exactly right")
	cmd.Flags().Int64Var(&o.Missing, "missing", 0, "refund although this many grants, exactly, are missing in the ledger and were decided not to be paid")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "wait this long at most until the ledger holds every grant")
	return cmd
}
