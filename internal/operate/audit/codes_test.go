package audit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func codeOf(packet int64) string { return fmt.Sprint("SECRET", packet) }

// coded returns a world with a third campaign, c, whose packets have codes. 20 of its packets are granted, settled and
// published.
func coded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	var codes []string
	for p := range int64(packets) {
		codes = append(codes, codeOf(p+1))
	}
	w.cfg.Codes = func(_ context.Context, _ string, after int64, n int) ([]string, error) {
		return codes[after:min(after+int64(n), packets)], nil
	}
	c := loaded.Rain("c", packets, total)
	c.Kind, c.Codes = hongbao.KindCoupon, &hongbao.Codes{File: "f"}
	plan, err := loaded.Seeded(t.Context(), w.store, c, campaign.NewSeed(), codes...)
	require.NoError(t, err)
	w.plans["c"], w.ledger.grants["c"] = plan, nil
	w.ledger.spoil = func(l *books.Totals) { l.Codes = l.Campaign == "c" }
	w.grab(t, "a", 0, 10)
	w.grab(t, "c", 0, 20)
	w.settle(t)
	w.publish(t)
	for i := range w.topic.grants {
		if g := &w.topic.grants[i]; g.Campaign == "c" {
			g.Code = codeOf(g.Packet)
		}
	}
	return w
}

// Equal codes are not reported: with a ledger, without one, and after the campaign has left Redis.
func TestCodesAgree(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world){
		"all":            func(*world) {},
		"without ledger": func(w *world) { w.cfg.Ledger, w.cfg.Codes = nil, nil },
		"without codes":  func(w *world) { w.cfg.Codes = nil },
		"retired": func(w *world) {
			w.leave(t, "c")
			w.cfg.Plan = w.plans
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := coded(t)
			change(w)
			r := w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
		})
	}
}

// The audit finds each altered or missing code, and its report never shows a code.
func TestCodesDiffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(t *testing.T, w *world)
		says  string
	}{
		"another code in the topic": {func(_ *testing.T, w *world) { w.published("c", "u0003").Code = codeOf(99) },
			"another code than the ledger"},
		"no code in the topic": {func(_ *testing.T, w *world) { w.published("c", "u0003").Code = "" },
			"the topic has no code"},
		"a code of no coupon": {func(_ *testing.T, w *world) { w.published("a", "u0003").Code = codeOf(1) },
			"the campaign has none"},
		"another code in Redis": {func(t *testing.T, w *world) {
			do(t, w.rdb.HSet(t.Context(), w.keys("c").Keys.Codes("c"), "50", codeOf(51)))
		}, "packet 50"},
		"no code in Redis": {func(t *testing.T, w *world) { do(t, w.rdb.HDel(t.Context(), w.keys("c").Keys.Codes("c"), "50")) },
			"Redis has no code of it"},
		"a code of no packet": {func(t *testing.T, w *world) {
			do(t, w.rdb.HSet(t.Context(), w.keys("c").Keys.Codes("c"), "101", codeOf(101)))
		}, "which is no packet"},
		"Redis forgot that it has codes": {func(t *testing.T,
			w *world) {
			do(t, w.rdb.HDel(t.Context(), w.keys("c").Keys.Campaign("c"), "codes"))
		}, "says that it has none"},
		"no code in the ledger": {func(_ *testing.T, w *world) {
			all := w.cfg.Codes
			w.cfg.Codes = func(ctx context.Context, id string, after int64, _ int) ([]string, error) {
				return all(ctx, id, after, int(max(packets-1-after, 0)))
			}
		}, "the ledger has no code of it"},
		"another code in the topic, no ledger": {func(_ *testing.T, w *world) {
			w.cfg.Codes = nil
			w.published("c", "u0003").Code = codeOf(99)
		}, "another code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := coded(t)
			c.plant(t, w)
			r := w.audit(t, audit.Options{})
			require.Equal(t, kinds(audit.CodeDiffers), r.Found, "%+v", r.Differences)
			require.Contains(t, r.Differences[0].String(), c.says)
			require.NotContains(t, r.Differences[0].String(), "SECRET")
		})
	}
}
