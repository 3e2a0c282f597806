package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// atOnce is how many processes close or refund a campaign at the same time.
const atOnce = 3

// end closes, refunds, reveals and verifies every campaign with the program, while the workers run. Then it runs an
// audit.
func (s *soak) end(ctx context.Context) error {
	for _, c := range s.campaigns {
		if err := s.closeAndRefund(ctx, c); err != nil {
			return err
		}
	}
	if err := s.compareRefunds(ctx); err != nil {
		return err
	}
	grants := filepath.Join(s.dir, "grants.jsonl")
	out, err := s.hongbao(ctx, "tail")
	if err = errors.Join(err, os.WriteFile(grants, out, 0o600)); err != nil {
		return fmt.Errorf("save the topic's grants: %w", err)
	}
	for _, c := range s.campaigns {
		if err := s.revealAndVerify(ctx, c, grants); err != nil {
			return err
		}
	}
	s.say("%d draws verify by the public data alone", len(s.campaigns))
	return s.audit(ctx)
}

// closeAndRefund closes and refunds a campaign, each in several processes at once. The amount of the refund comes from
// the callers' history, and the program accepts no other amount.
func (s *soak) closeAndRefund(ctx context.Context, c *raining) error {
	id := c.spec.ID
	if err := s.runConcurrently(ctx, "campaign", "close", id, "--early"); err != nil {
		return err
	}
	return s.runConcurrently(ctx, "campaign", "refund", id, "--amount", fmt.Sprint(int64(c.left())), "--wait", "60s")
}

// runConcurrently runs a command in several processes at once. All of them must succeed and print the same first line.
func (s *soak) runConcurrently(ctx context.Context, args ...string) error {
	first := make([]string, atOnce)
	g, ctx := errgroup.WithContext(ctx)
	for i := range first {
		g.Go(func() error {
			out, err := s.hongbao(ctx, args...)
			line, _, _ := bytes.Cut(out, []byte("\n"))
			first[i] = string(line)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return same(first)
}

func same(lines []string) error {
	for _, l := range lines {
		if l == "" || l != lines[0] {
			return fmt.Errorf("processes that ran the same command at once printed different first lines: %q", lines)
		}
	}
	return nil
}

// compareRefunds reads the refunds from the ledger by SQL, and compares each with the amount that the callers' history
// leaves.
func (s *soak) compareRefunds(ctx context.Context) error {
	var all []refunded
	var r refunded
	if err := s.eachRow(ctx, "SELECT campaign, amount FROM transfer WHERE kind = 'refund'", []any{&r.campaign, &r.amount},
		func() { all = append(all, r) }); err != nil {
		return fmt.Errorf("read the refunds: %w", err)
	}
	s.outcome.Refunds = int64(len(all))
	sum, err := judgeRefunds(all, s.campaigns)
	s.say("%d refunds, %d fen in all", len(all), sum)
	return err
}

// refunded is a transfer that returns money to a sponsor.
type refunded struct {
	campaign string
	amount   hongbao.Amount
}

// judgeRefunds requires one refund for each campaign, of the amount that the callers' history leaves. It returns the
// sum, which must be above 0.
func judgeRefunds(all []refunded, campaigns []*raining) (sum hongbao.Amount, err error) {
	times := map[string]int{}
	paid := map[string]hongbao.Amount{}
	for _, r := range all {
		times[r.campaign]++
		paid[r.campaign] += r.amount
		sum += r.amount
	}
	for _, c := range campaigns {
		id := c.spec.ID
		if times[id] != 1 || paid[id] != c.left() {
			err = errors.Join(err, fmt.Errorf("campaign %s has %d refunds of %d in all: want 1 of %d", id, times[id], paid[id],
				c.left()))
		}
	}
	if len(times) != len(campaigns) {
		err = errors.Join(err, fmt.Errorf("the ledger has refunds of %d campaigns: there are %d", len(times), len(campaigns)))
	}
	if sum == 0 {
		err = errors.Join(err, errors.New("no campaign had money left, so no refund was tested"))
	}
	return sum, err
}

// revealAndVerify reveals a campaign, and verifies the draw from the revealed file, the published hash and the grants
// in the topic. The verifying process has no access to any server.
func (s *soak) revealAndVerify(ctx context.Context, c *raining, grants string) error {
	file := filepath.Join(s.dir, c.spec.ID+".revealed.json")
	out, err := s.hongbao(ctx, "campaign", "reveal", c.spec.ID)
	if err = errors.Join(err, os.WriteFile(file, out, 0o600)); err != nil {
		return fmt.Errorf("reveal %s: %w", c.spec.ID, err)
	}
	if out, err = s.once(ctx, []string{}, "campaign", "verify", file, "--hash", c.hash, "--grants", grants); err != nil {
		return err
	}
	return judgeVerified(out, c)
}

// judgeVerified requires that the program compared as many grants with the plan as callers were told of.
func judgeVerified(out []byte, c *raining) error {
	if want := fmt.Sprintf("\n%d grants, ", len(c.announced)); !bytes.Contains(out, []byte(want)) {
		return fmt.Errorf("verify %s compared other grants than the %d that callers were told of: %.300s", c.spec.ID,
			len(c.announced), out)
	}
	return nil
}
