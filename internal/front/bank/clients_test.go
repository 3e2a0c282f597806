package bank

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// Each page has the start of the next page. The last page has it too, so that a client can read later credits.
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

// A client gets all of its own credits in pages, and no credits of another client.
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

// Two clients may use the same key and the same reference. Each sees only its own credit.
func TestClientsAreApart(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good).Status)
	require.Equal(t, 404, s.call(t, "GET", "/v1/credits/r1", "", as(theirText)).Status)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", amount("7"), as(theirText)).Status)
	require.EqualValues(t, 7, s.call(t, "GET", "/v1/credits/r1", "", as(theirText)).Body["amount"])
	require.EqualValues(t, 100, s.call(t, "GET", "/v1/credits/r1", "").Body["amount"])
	lines := s.call(t, "GET", "/v1/accounts/u1/statement?currency=CNY", "").Body["credits"].([]any)
	require.Equal(t, "c2", lines[1].(map[string]any)["client"])
}

// Each role may use exactly the endpoints in the table of roles. Any other use answers 403, is recorded, and
// books nothing.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path := strings.NewReplacer("{reference}", "r1", "{id}", "u1")
	for _, role := range access.Roles() {
		client := ""
		if role == access.RoleClient || role == access.RoleAccountant {
			client = "c3"
		}
		k, text := newKey(role, client)
		s.mu.Lock()
		s.keys = append(s.keys, k)
		s.mu.Unlock()
		booked, denied, may := s.booked(), s.denied.Load(), 0
		for _, e := range (&Balance{}).endpoints() {
			if len(e.Roles) == 0 {
				continue // a probe
			}
			r := s.call(t, e.Method, path.Replace(e.Path), good, as(text))
			if slices.Contains(e.Roles, string(role)) {
				may++
				require.NotContains(t, []int{401, 403}, r.Status, "%s %s: %s", role, e.ID, r.Text)
				continue
			}
			r.Refused(t, "forbidden", "%s %s", role, e.ID)
			denied++
			require.Equal(t, denied, s.denied.Load(), "%s %s", role, e.ID)
		}
		require.Equal(t, client != "", may > 0, "%s", role)
		require.Equal(t, role == access.RoleClient, s.booked() > booked, "%s", role)
	}
}

// The journal gets an accountant's reads of an account, with the address of the caller. It gets no reads of a client, and
// none that were refused.
func TestReadsOfAccountsAreNoted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/v1/accounts/u1", "/v1/accounts/u2/statement?currency=CNY"} {
		require.Equal(t, http.StatusOK, s.call(t, "GET", path, "", as(accountText)).Status)
		s.call(t, "GET", path, "", as(clientText)).Refused(t, "forbidden")
	}
	s.call(t, "GET", "/v1/accounts/u3/statement", "", as(accountText)).Refused(t, "currency_invalid")
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/v1/credits", "", as(clientText)).Status)
	who := "key:" + accountKey.ID + " read_accounts "
	require.Equal(t, []string{who + "u1 127.0.0.1 true", who + "u2 127.0.0.1 true"}, s.hasRead)
}

// ask calls the handler directly, because a network does not work under synctest.
func (m *memBook) ask(t *testing.T, h http.Handler, method, path, key string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(good))
	as(key)(r)
	header("Content-Type", "application/json")(r)
	header("Idempotency-Key", "k1")(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A revoked key is refused within 10 s. While the ledger is down, a known key works for 15 minutes.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newBook()
		b, err := NewBalance(testConfig(), m.deps(zap.NewNop()))
		require.NoError(t, err)
		credit := func(key string) int { return m.ask(t, b.handler, "POST", "/v1/credits", key) }
		require.Equal(t, 201, credit(clientText))
		m.mu.Lock()
		m.keys = m.keys[1:]
		m.mu.Unlock()
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's clock
		require.Equal(t, 401, credit(clientText))
		require.Equal(t, 201, credit(theirText), "another client's key works on")
		m.keysErr = hongbao.Outagef(hongbao.ClassTransient, "the database is down")
		for range 14 {
			time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
			require.Equal(t, 200, credit(theirText), "a repeat")
			require.Equal(t, 200, m.ask(t, b.handler, "GET", "/v1/accounts/u1", accountText))
			require.Equal(t, 503, credit(clientText), "the ledger can't confirm this key")
			require.Equal(t, 503, m.ask(t, b.handler, "GET", "/readyz", ""))
		}
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Equal(t, 503, credit(theirText))
		m.keysErr = nil
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		require.Equal(t, 200, credit(theirText))
	})
}

// A text that can't be an API key is refused without a query to the ledger.
func TestNonsenseCostsNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 200, s.call(t, "GET", "/v1/credits", "").Status)
	for range 50 {
		require.Equal(t, 401, s.call(t, "GET", "/v1/credits", "", as("not-even-a-key")).Status)
	}
	s.mu.Lock()
	require.Equal(t, 1, s.asked, "only the first request")
	s.mu.Unlock()
}

// Health probes need no API key, and /readyz shows whether the ledger answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := setup(t)
	noKey := header("Authorization", "")
	for _, path := range []string{"/livez", "/readyz"} {
		r := s.call(t, "GET", path, "", noKey)
		require.Equal(t, 200, r.Status, r.Text)
		require.JSONEq(t, `{"status":"ok"}`, r.Text)
		require.Equal(t, 405, s.call(t, "POST", path, "", noKey).Status)
	}
	down := setup(t)
	down.err = hongbao.Outagef(hongbao.ClassTransient, "the database is away")
	require.Equal(t, 200, down.call(t, "GET", "/livez", "", noKey).Status)
	require.Equal(t, 503, down.call(t, "GET", "/readyz", "", noKey).Status)
	require.Equal(t, 503, down.call(t, "GET", "/v1/credits", "").Status, "the ledger can't confirm the key")
}

// Requests without a valid key can't fill the log: few are logged, and long paths are cut.
func TestStrangersInTheLog(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for range 100 {
		s.call(t, "GET", "/v1/accounts/"+strings.Repeat("a", 4000), "", as("not-even-a-key")).Refused(t, "unauthorized")
	}
	lines := s.logs.FilterMessage("a request was refused").All()
	require.NotEmpty(t, lines)
	require.Less(t, len(lines), 60, "ten a second")
	for _, l := range lines {
		require.Less(t, len(l.ContextMap()["path"].(string)), 300)
	}
}
