package test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// doorman is a proxy in front of a balance server. It refuses one account without a reason.
type doorman struct {
	*httptest.Server
	account atomic.Value
	refused atomic.Int64
}

func newDoorman(t *testing.T, target, account string) *doorman {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	d := &doorman{}
	d.account.Store(account)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var c struct{ Account string }
		if json.Unmarshal(body, &c) == nil && c.Account == d.account.Load() {
			d.refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(d.Close)
	return d
}

// The remote refuses one account. Other grants of the shard are still paid, including later ones. When the remote
// accepts the account, its grants are paid as well.
func TestOneAccountTheRemoteRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	const packets = 60
	rain, snow := b.load(t, spec("rain", packets, 10_000)), b.load(t, spec("snow", packets, 10_000))
	db, sut := b.ledger(t, rain, snow)
	want := b.crowd(t, "rain", packets)
	address, bank := remoteBalance(t)
	d := newDoorman(t, address, user(7))
	c, _ := b.remoteWorker(t, "w1", d.URL, db, sut, func(c *remote.Config) {
		c.HeaderTimeout, c.Timeout, c.ClaimTime = 8*time.Second, 9*time.Second, 20*time.Second
	})
	testkit.Eventually(t, 30*time.Second, func() bool { return c.Stats().Done == packets-1 },
		"all other grants of the campaign are paid")
	for account, amount := range b.crowd(t, "snow", packets) {
		want[account] += amount
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return c.Stats().Done == 2*packets-2 },
		"all other grants of the next campaign are paid")
	require.Positive(t, d.refused.Load())
	require.Zero(t, c.Stats().Outages)
	balances, err := bank.AccountBalances(t.Context(), user(7))
	require.NoError(t, err)
	require.Empty(t, balances)
	d.account.Store("")
	testkit.Eventually(t, 30*time.Second, func() bool { return b.settled(t) }, "the account is accepted")
	require.Zero(t, b.dead(t))
	for account, amount := range want {
		balances, err := bank.AccountBalances(t.Context(), account)
		require.NoError(t, err)
		require.Equal(t, []payment.AccountBalance{{Currency: "CNY", Balance: amount, Credits: 2}}, balances, account)
	}
}
