package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/closing"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/lock"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// withCloser is with, for what is done to a campaign at its end.
func withCloser(cmd *cobra.Command, id string, do func(*closing.Closer, *ledger.StoredCampaign) error) error {
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
			return withCloser(cmd, id, func(closer *closing.Closer, c *ledger.StoredCampaign) error {
				s, err := closer.Close(cmd.Context(), id, early)
				if err != nil {
					return closeHint(err, c)
				}
				return printEnding(cmd, c, &s)
			})
		},
	}
	cmd.Flags().BoolVar(&early, "early", false, "end it before its window is over")
	return cmd
}

// closeHint says what to do about a campaign that is not where it should be.
func closeHint(err error, c *ledger.StoredCampaign) error {
	id := c.Spec.ID
	switch {
	case errors.Is(err, shards.ErrNotClosed):
		return fmt.Errorf("%w: `hongbao campaign close %s` ends it first", err, id)
	case errors.Is(err, shards.ErrNotInRedis) && c.Grants > 0:
		return fmt.Errorf("%w; the ledger has paid %d grants: %w", err, c.Grants, shards.LostError(id))
	case errors.Is(err, shards.ErrNotInRedis):
		return fmt.Errorf("%w: `hongbao campaign load %s` brings it there; then close it, and all of its money can go back", err, id)
	}
	return err
}

// ending is how far the end of a campaign is.
type ending struct {
	Campaign string `json:"campaign"`
	Currency string `json:"currency,omitempty"`
	Closed   *ended `json:"closed"` // null once the campaign has left Redis
	// Settling: group balance has not finished the grants up to the close, only those up to Finished.
	Settling bool  `json:"settling"`
	Finished int64 `json:"finished_seq"`
	// Missing grants are not in the ledger although the group has finished them; below 0, it has paid more than were granted.
	Missing int64 `json:"missing"`
	// Amount is what is to be refunded, or was.
	Amount   hongbao.Amount `json:"refund_amount"`
	Refunded *refunded      `json:"refunded"`
	Next     string         `json:"next"`
}

type ended struct {
	Time          time.Time      `json:"time"`
	Event         string         `json:"event"`
	Granted       int64          `json:"granted"`
	GrantedAmount hongbao.Amount `json:"granted_amount"`
	Left          int64          `json:"left"`
	LeftAmount    hongbao.Amount `json:"left_amount"`
}

type refunded struct {
	Time    time.Time `json:"time"`
	Packets int64     `json:"packets"`
	Sponsor string    `json:"sponsor"`
}

func endingOf(c *ledger.StoredCampaign, s *closing.Standing) *ending {
	id := c.Spec.ID
	out := &ending{Campaign: id, Currency: c.Spec.Currency, Settling: !s.Settled(), Finished: s.Finished, Missing: s.Missing(), Amount: s.Amount()}
	if e := &s.Close; e.Kind != "" {
		out.Closed = &ended{e.Time, fmt.Sprintf("%d-%d", e.Shard, e.Seq), e.Close.Granted, e.Close.GrantedAmount, e.Close.Left, e.Close.LeftAmount}
	}
	switch {
	case s.Refund != nil:
		out.Refunded, out.Next = &refunded{s.Refund.Created, s.Refund.Packets, s.Refund.Sponsor}, "hongbao campaign reveal "+id
	case out.Missing != 0:
		out.Next = "hongbao audit --campaign " + id
	default:
		out.Next = fmt.Sprintf("hongbao campaign refund %s --amount %d", id, out.Amount)
	}
	return out
}

func (e *ending) write(w io.Writer) error {
	var b strings.Builder
	if c := e.Closed; c != nil {
		fmt.Fprintf(&b, "campaign %s was closed %s by event %s\ngranted %d packets, %s\nleft %d packets, %s\n", e.Campaign,
			c.Time.Format(time.RFC3339), c.Event, c.Granted, money.Text(c.GrantedAmount, e.Currency), c.Left, money.Text(c.LeftAmount, e.Currency))
	}
	switch r := e.Refunded; {
	case r != nil:
		fmt.Fprintf(&b, "campaign %s was refunded %s: %d packets, %s, to sponsor %s\n", e.Campaign, r.Time.Format(time.RFC3339), r.Packets,
			money.Text(e.Amount, e.Currency), r.Sponsor)
	case e.Settling:
		fmt.Fprintf(&b, "settling: group %s has finished events up to %d\n", configs.SinkBalance, e.Finished)
	case e.Missing > 0:
		fmt.Fprintf(&b, "%d grants are missing in the ledger: dead letters, or in quarantine\n", e.Missing)
	case e.Missing < 0:
		fmt.Fprintf(&b, "the ledger has paid %d grants more than the close tells of\n", -e.Missing)
	}
	_, err := fmt.Fprintf(w, "%snext: %s\n", b.String(), e.Next)
	return err
}

func printEnding(cmd *cobra.Command, c *ledger.StoredCampaign, s *closing.Standing) error {
	e := endingOf(c, s)
	return printAnswer(cmd, e, e.write)
}

func refundCmd() *cobra.Command {
	o := closing.Order{}
	cmd := &cobra.Command{
		Use: "refund ID --amount MINOR-UNITS", Short: "Give what nobody got back to the sponsor, once",
		Long: "Posts the refund of a closed campaign: what was funded and not granted goes back to its sponsor, once, however often this is run\n" +
			"and wherever it is killed. --amount must be exactly that sum in minor units: without it nothing moves, the sum is printed and the\n" +
			"exit code is 2; with another one the exit code is 1. While the ledger does not hold every grant up to the close, nothing moves and\n" +
			"the exit code is 4 (settling): run it again, or give --wait.",
		Example: "  hongbao campaign refund spring-rain\n  hongbao campaign refund spring-rain --amount 250 --wait 1m", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			o.Campaign = id
			if o.Wait < 0 || o.Missing < 0 {
				return usage("--wait %s, --missing %d: give nothing below 0", o.Wait, o.Missing)
			}
			return withCloser(cmd, id, func(closer *closing.Closer, c *ledger.StoredCampaign) error {
				if !cmd.Flags().Changed("amount") {
					s, err := closer.Standing(cmd.Context(), id)
					if err != nil {
						return closeHint(err, c)
					}
					if err := printEnding(cmd, c, &s); err != nil || s.Refund != nil {
						return err
					}
					return usage("nothing was moved: if this is the right campaign, run it again with --amount %d", s.Amount())
				}
				r, err := closer.Refund(cmd.Context(), o)
				if err != nil {
					return closeHint(err, c)
				}
				return printEnding(cmd, c, &closing.Standing{Refund: &r})
			})
		},
	}
	cmd.Flags().Var((*amountFlag)(&o.Amount), "amount", "the sum to be refunded, in minor units; it must be exactly right")
	cmd.Flags().Int64Var(&o.Missing, "missing", 0, "refund although this many grants, exactly, are missing in the ledger and were decided not to be paid")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "wait this long at most until the ledger holds every grant")
	return cmd
}
