package producer_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

// coupons loads a campaign of coupons, in which packet k has the code Ck. A user may get each packets.
func (b *bundle) coupons(t *testing.T, packets, each int64) {
	t.Helper()
	c := spec("rain", packets)
	c.Kind, c.Total, c.Currency, c.Codes = hongbao.KindCoupon, 0, "", &hongbao.Codes{File: "codes.txt"}
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: each}}
	codes := make([]string, packets)
	for i := range codes {
		codes[i] = fmt.Sprint("C", i+1)
	}
	b.load(t, c, codes...)
}

func isCodes(request []byte) bool {
	return bytes.Contains(bytes.ToLower(request), []byte("hmget")) && bytes.Contains(request, []byte(":codes"))
}

// Many users grab while answers of Redis are lost. Every receipt that they get has the code of its packet.
func TestCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.coupons(t, 1000, 3)
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	var wg sync.WaitGroup
	var refused atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := range 30 {
				if w == 0 {
					proxy.SwallowAnswers(1, isCodes)
				}
				user, request := fmt.Sprintf("u%d-%d", w, i/5), fmt.Sprint("r", i)
				a, err := p.Grab(t.Context(), grab(user, request))
				again, err2 := p.Grab(t.Context(), grab(user, request))
				switch {
				case err != nil || err2 != nil:
					t.Errorf("%s: %v, %v", user, err, err2)
				case i%5 >= 3:
					refused.Add(1)
					if a.Outcome != hongbao.OutcomeLimitReached {
						t.Errorf("%s: %s", user, a.Outcome)
					}
				case a.Outcome != hongbao.OutcomeGranted || a.Receipts[0].Code != fmt.Sprint("C", a.Receipts[0].Packet) ||
					again.Receipts[0] != a.Receipts[0]:
					t.Errorf("%s: %+v, again %+v", user, a, again)
				}
			}
		})
	}
	wg.Wait()
	fired := proxy.Fired().Swallowed
	proxy.SwallowAnswers(0, nil)
	require.GreaterOrEqual(t, fired, 10)
	require.EqualValues(t, 16*30*2/5, refused.Load())
}

// A user who already has a coupon grabs with another request id, and gets that coupon with its code.
func TestCodeOfAlreadyGranted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.coupons(t, 10, 1)
	p := b.producer(t, nil)
	first, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	a, err := p.Grab(t.Context(), grab("u1", "r2"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome)
	require.Equal(t, first.Receipts, a.Receipts)
	require.Equal(t, "C1", a.Receipts[0].Code)
}

// The codes can't be read, so the grab fails with an Unknown outage although it was granted. A retry after the repair
// returns the receipt with its code.
func TestCodesOutOfReach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.coupons(t, 10, 1)
	p := b.producer(t, func(c *producer.Config) { c.CallTimeout = hopeless })
	ctx, k := t.Context(), b.k
	for i, hide := range []func() (show func()){
		func() func() {
			require.NoError(t, b.admin.Rename(ctx, k.Keys.Codes("rain"), k.Keys.Codes("rain")+"-hidden").Err())
			return func() {
				require.NoError(t, b.admin.Rename(ctx, k.Keys.Codes("rain")+"-hidden", k.Keys.Codes("rain")).Err())
			}
		},
		func() func() {
			require.NoError(t, b.admin.HDel(ctx, k.Keys.Codes("rain"), "2").Err())
			return func() { require.NoError(t, b.admin.HSet(ctx, k.Keys.Codes("rain"), "2", "C2").Err()) }
		},
	} {
		user := fmt.Sprint("u", i)
		show := hide()
		_, err := p.Grab(ctx, grab(user, "r1"))
		require.True(t, hongbao.IsOutage(err), "%v", err)
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
		require.Len(t, b.grants(t), i+1, "the grant stays")
		show()
		a, err := p.Grab(ctx, grab(user, "r1"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		require.Equal(t, fmt.Sprint("C", i+1), a.Receipts[0].Code)
		require.Len(t, b.grants(t), i+1)
	}
}

// The connection is lost while the producer reads the codes. The error must be Unknown, because the grant was already
// made.
func TestCodesConnectionLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.coupons(t, 10, 1)
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.CallTimeout = b.over(rdb), hopeless })
	proxy.SwallowAnswers(1000, isCodes)
	_, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	require.Positive(t, proxy.Fired().Swallowed)
	require.Len(t, b.grants(t), 1)
	proxy.SwallowAnswers(0, nil)
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, "C1", a.Receipts[0].Code)
}

// In a campaign without codes, the producer does not try to read codes.
func TestNoCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	proxy.SwallowAnswers(1000, isCodes)
	for i := range 10 {
		a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r1"))
		require.NoError(t, err)
		require.Empty(t, a.Receipts[0].Code)
	}
	require.Zero(t, proxy.Fired().Swallowed)
}
