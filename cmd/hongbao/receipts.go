package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// receiptsOf is what `hongbao receipts` tells.
type receiptsOf struct {
	Campaign string            `json:"campaign"`
	User     string            `json:"user"`
	Source   string            `json:"source"` // redis, or ledger
	Currency string            `json:"currency,omitempty"`
	Receipts []hongbao.Receipt `json:"receipts"`
	// Incomplete: the campaign is not in Redis and was not refunded, so the ledger may not have all.
	Incomplete bool `json:"incomplete,omitempty"`
}

func receiptsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "receipts CAMPAIGN USER", Short: "Print what a user holds in a campaign: from Redis, or from the ledger once it has left Redis",
		Example: "  hongbao receipts spring-rain u1\n  hongbao receipts spring-rain u1 --json", Args: exactly(2, "a CAMPAIGN and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCampaigns(args[0]); err != nil {
				return err
			}
			if err := hongbao.CheckID(args[1]); err != nil {
				return usage("user %.80q: %w", args[1], err)
			}
			return with(cmd, needs{redis: true}, func(d *deps) error {
				out, err := d.receipts(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error { return writeReceipts(cmd, w, &out) })
			})
		},
	}
}

// receipts asks Redis, and the ledger if the campaign is not there.
func (d *deps) receipts(ctx context.Context, id, user string) (receiptsOf, error) {
	out := receiptsOf{Campaign: id, User: user, Source: "redis", Receipts: []hongbao.Receipt{}}
	list, err := d.redisReceipts(ctx, id, user)
	if err == nil {
		out.Receipts = append(out.Receipts, list...)
		out.Currency = d.currency(ctx, id)
	}
	if !errors.Is(err, shards.ErrNotInRedis) {
		return out, err
	}
	if err := d.openLedger(ctx); err != nil {
		return out, err
	}
	c, err := d.campaign(ctx, id)
	if err != nil {
		return out, err
	}
	grants, err := d.ledger.UserGrants(ctx, id, user)
	out.Source, out.Incomplete, out.Currency = "ledger", c.State != ledger.StateRefunded, c.Spec.Currency
	for i := range grants {
		g := &grants[i]
		out.Receipts = append(out.Receipts, hongbao.Receipt{
			Packet: g.Packet, Amount: g.Amount, Shard: g.Shard, Seq: g.Seq, Time: g.Time, RequestID: g.RequestID, Code: g.Code,
		})
	}
	return out, err
}

func writeReceipts(cmd *cobra.Command, w io.Writer, out *receiptsOf) error {
	if out.Incomplete {
		fmt.Fprintf(cmd.ErrOrStderr(), "campaign %s is not in Redis and not refunded: the ledger may not have all. `hongbao campaign show %s` tells more\n", out.Campaign, out.Campaign)
	}
	for _, r := range out.Receipts {
		if err := writeReceipt(w, &r, out.Currency); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d receipts of user %s in campaign %s (from %s)\n", len(out.Receipts), out.User, out.Campaign, out.Source)
	return err
}

// redisReceipts reads a user's receipts from Redis, with their codes.
func (d *deps) redisReceipts(ctx context.Context, id, user string) ([]hongbao.Receipt, error) {
	k := d.space.Home(id)
	list, err := shards.Of(d.redis, k).UserReceipts(ctx, id, user)
	if err != nil || len(list) == 0 {
		return list, err
	}
	if _, has, err := shards.Of(d.redis, k).Terms(ctx, id); err != nil || !has {
		return list, err
	}
	missing, err := shards.Of(d.redis, k).FillCodes(ctx, id, list)
	return list, errors.Join(append(missing, err)...)
}

func writeReceipt(w io.Writer, r *hongbao.Receipt, currency string) error {
	code := ""
	if r.Code != "" {
		code = ", code " + r.Code
	}
	_, err := fmt.Fprintf(w, "packet %d, %s%s, event %d-%d, granted %s, request id %s\n", r.Packet, money.Text(r.Amount, currency), code, r.Shard, r.Seq,
		r.Time.UTC().Format(time.RFC3339Nano), r.RequestID)
	return err
}
