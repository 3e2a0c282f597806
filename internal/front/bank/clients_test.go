package bank

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A page tells where the next one begins, the last one too: there the credits are found that come later.
func TestStatementPages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	book := func(i int) {
		s.one(payment.Credit{Client: "c1", Key: fmt.Sprint("k", i), Reference: fmt.Sprint("r", i), Account: "u1",
			Currency: "CNY", Amount: 1})
	}
	for i := range 5 {
		book(i)
	}
	after, got := "0", []any{}
	read := func() (n int) {
		r := s.call(t, "GET", "/v1/accounts/u1/statement?currency=CNY&limit=2&after="+after, "")
		require.Equal(t, 200, r.Status, r.Text)
		lines := r.Body["credits"].([]any)
		for _, v := range lines {
			c := v.(map[string]any)
			got = append(got, c["reference"])
			require.EqualValues(t, len(got), c["number"])
		}
		after = fmt.Sprint(r.Body["next"])
		return len(lines)
	}
	for read() > 0 {
	}
	require.Equal(t, []any{"r0", "r1", "r2", "r3", "r4"}, got)
	require.Equal(t, "5", after)
	book(5)
	require.Equal(t, 1, read())
	require.Equal(t, "r5", got[5])
}

// All credits of a client, and none of another, in pages.
func TestCreditList(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range 7 {
		s.one(payment.Credit{Client: fmt.Sprint("c", i%2+1), Key: fmt.Sprint("k", i), Reference: fmt.Sprint("r", 9-i),
			Account: "u1", Currency: "CNY", Amount: 1})
	}
	var got []any
	for path := "/v1/credits?limit=2"; path != ""; {
		r := s.call(t, "GET", path, "")
		require.Equal(t, 200, r.Status, r.Text)
		for _, v := range r.Body["credits"].([]any) {
			got = append(got, v.(map[string]any)["reference"])
		}
		next, more := r.Body["next"].(string)
		if path = "/v1/credits?limit=2&after=" + next; !more {
			path = ""
		}
	}
	require.Equal(t, []any{"r3", "r5", "r7", "r9"}, got)
}

// Two clients use the same key and the same reference; neither sees the other's credit.
func TestClientsAreApart(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good).Status)
	require.Equal(t, 404, s.call(t, "GET", "/v1/credits/r1", "", as(theirToken)).Status)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", amount("7"), as(theirToken)).Status)
	require.EqualValues(t, 7, s.call(t, "GET", "/v1/credits/r1", "", as(theirToken)).Body["amount"])
	require.EqualValues(t, 100, s.call(t, "GET", "/v1/credits/r1", "").Body["amount"])
	lines := s.call(t, "GET", "/v1/accounts/u1/statement?currency=CNY", "", as(readingToken)).Body["credits"].([]any)
	require.Equal(t, "c2", lines[1].(map[string]any)["client"])
}

// A token that is revoked is refused within moments; requests with unknown tokens do not reach the ledger.
func TestTokensAreReadAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 200, s.call(t, "GET", "/v1/credits", "").Status)
	for range 50 {
		require.Equal(t, 401, s.call(t, "GET", "/v1/credits", "", as("a-token-that-nobody-has")).Status)
	}
	s.mu.Lock()
	require.Less(t, s.asked, 10, "the list serves all requests of a second")
	s.tokens = s.tokens[1:]
	s.mu.Unlock()
	testkit.Eventually(t, 20*time.Second, func() bool { return s.call(t, "GET", "/v1/credits", "").Status == 401 },
		"the token is refused")
	require.Equal(t, 200, s.call(t, "GET", "/v1/credits", "", as(theirToken)).Status)
}

// Probes need no token, and the one for readiness tells whether the ledger answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := setup(t)
	noToken := header("Authorization", "")
	for _, path := range []string{"/livez", "/readyz"} {
		r := s.call(t, "GET", path, "", noToken)
		require.Equal(t, 200, r.Status, r.Text)
		require.JSONEq(t, `{"status":"ok"}`, r.Text)
		require.Equal(t, 405, s.call(t, "POST", path, "", noToken).Status)
	}
	down := setup(t)
	down.err = hongbao.Outagef(hongbao.ClassTransient, "the database is away")
	require.Equal(t, 200, down.call(t, "GET", "/livez", "", noToken).Status)
	require.Equal(t, 503, down.call(t, "GET", "/readyz", "", noToken).Status)
	require.Equal(t, 503, down.call(t, "GET", "/v1/credits", "").Status, "nobody can tell whether the token is valid")
}

// A ledger that hangs holds no caller up for longer than a reading may take, and the list that was read before counts
// for a while only.
func TestTokensOfALedgerThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		list := tokens{source: func(ctx context.Context) ([]payment.ClientToken, error) {
			if !hangs {
				return []payment.ClientToken{{Hash: "h"}}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		_, err := list.current(t.Context())
		require.NoError(t, err)
		hangs = true
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for began := time.Now(); time.Since(began) < awayAge-time.Minute; time.Sleep(time.Minute) { //nolint:forbidigo // the bubble's clock
			asked := time.Now()
			now, err := list.current(gone)
			require.NoError(t, err)
			require.NotNil(t, now.byHash["h"])
			require.LessOrEqual(t, time.Since(asked), readTime)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the bubble's clock
		_, err = list.current(t.Context())
		require.ErrorContains(t, err, "more than 15m0s ago")
		hangs = false
		_, err = list.current(gone)
		require.NoError(t, err, "the caller's own end does not end the reading for all")
	})
}

// While no list was ever read, callers share one reading: none waits for those before it.
func TestTheFirstListOfALedgerThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var readings atomic.Int64
		list := tokens{source: func(ctx context.Context) ([]payment.ClientToken, error) {
			readings.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		began, ended := time.Now(), make(chan error, 200)
		for range cap(ended) {
			go func() {
				_, err := list.current(t.Context())
				ended <- err
			}()
		}
		for range cap(ended) {
			require.Error(t, <-ended)
		}
		require.LessOrEqual(t, time.Since(began), readTime)
		require.EqualValues(t, 1, readings.Load())
	})
}

// Strangers can't fill the log: their lines are few, and a path is cut.
func TestStrangersInTheLog(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for range 100 {
		s.call(t, "GET", "/v1/accounts/"+strings.Repeat("a", 4000), "", as("a-token-that-nobody-has")).Refused(t, "unauthorized")
	}
	lines := s.logs.FilterMessage("a request was refused").All()
	require.NotEmpty(t, lines)
	require.Less(t, len(lines), 60, "ten a second")
	for _, l := range lines {
		require.Less(t, len(l.ContextMap()["path"].(string)), 300)
	}
}
