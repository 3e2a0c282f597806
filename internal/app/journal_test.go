package app

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// One entry has text that a caller made up and that no ledger accepts. The other entries still get into the journal.
func TestNothingStopsTheJournal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for driver, start := range map[string]func(testing.TB) string{
		"postgres": func(t testing.TB) string { return testkit.Postgres(t) },
		"mysql":    func(t testing.TB) string { return testkit.MariaDB(t) },
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			allow := map[string]string{"postgres": "fsync,full_page_writes", "mysql": "innodb_doublewrite"}[driver]
			a := onServers(t, driver, start(t), allow)
			ctx := access.As(t.Context(), access.Actor{Who: "key:\x00k", RequestID: "r\x001"})
			entry := About(ctx, access.Replay, "a\x00b"+strings.Repeat("🧧", 500))
			entry.Outcome = access.OutcomeRefused
			require.NoError(t, a.leave(ctx, &entry))
			require.EqualValues(t, 1, a.redis.LLen(ctx, a.store.Journal()).Val())

			bad := access.NewEntry(ctx, access.PauseSink)
			bad.ID = "\x00" + strings.Repeat("x", 300)
			text, err := json.Marshal(&bad)
			require.NoError(t, err)
			for _, text := range []string{string(text), "no JSON", `{"id":""}`} {
				require.NoError(t, a.redis.LPush(ctx, a.store.Journal(), text, text).Err())
			}
			a.Denied(access.As(ctx, access.Actor{Who: "key:good"}), access.Refund, "rain", access.ErrForbidden)
			require.Zero(t, a.redis.LLen(ctx, a.store.Journal()).Val())

			page, err := a.Journal(ctx, access.JournalQuery{Limit: 100})
			require.NoError(t, err)
			require.Len(t, page.Entries, 5)
			notes := 0
			for _, e := range page.Entries {
				switch e.Action {
				case access.Replay:
					require.Equal(t, []string{"key:k", "r1", ""}, []string{e.Who, e.RequestID, e.Campaign})
					require.Regexp(t, "^ab🧧", e.Details["campaign"])
				case access.Refund:
					require.Equal(t, "rain", e.Campaign)
				default:
					notes++
					require.WithinDuration(t, time.Now(), e.Time, time.Minute)
					require.NotEmpty(t, e.Details["error"])
					require.NotEmpty(t, e.Details["entry"])
				}
			}
			require.Equal(t, 3, notes)
		})
	}
}

// Whoever may write to Redis can't forge an entry unnoticed, hide one, or block those behind it: each entry that came
// through Redis is marked, and one with an impossible field becomes a note. Entries of a process that reaches the ledger
// do not pass through Redis.
func TestWhatRedisCanDoToTheJournal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "postgres", testkit.Postgres(t), "fsync,full_page_writes")
	a.tended.Store(true) // no command moves the list
	ctx := access.As(t.Context(), access.Actor{Who: "key:ann"})
	a.Denied(ctx, access.Refund, "rain", access.ErrForbidden)
	require.Zero(t, a.redis.LLen(ctx, a.store.Journal()).Val(), "it is in the ledger")
	page, err := a.Access().Journal(ctx, access.JournalQuery{Limit: 100})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	require.NotContains(t, page.Entries[0].Details, access.ThroughRedis)

	forged := map[string]func(e *access.Entry){
		"an id of 12,000 characters": func(e *access.Entry) { e.ID = strings.Repeat("ABCDEFGHIJKL", 1000) },
		"an id in lower case":        func(e *access.Entry) { e.ID = strings.ToLower(e.ID) },
		"from the future":            func(e *access.Entry) { e.Time = time.Now().Add(48 * time.Hour) },
		"before our time":            func(e *access.Entry) { e.Time = time.Unix(1, 0) },
		"no actor":                   func(e *access.Entry) { e.Who = "" },
		"an action that is text":     func(e *access.Entry) { e.Action = "\x1b[2Jgone" },
		"another outcome":            func(e *access.Entry) { e.Outcome = "fine" },
		"details of 1 MB":            func(e *access.Entry) { e.Details = map[string]any{"x": strings.Repeat("x", 1<<20)} },
	}
	push := func(change func(e *access.Entry)) {
		e := access.NewEntry(ctx, access.PauseSink)
		e.End(nil)
		change(&e)
		text, err := json.Marshal(&e)
		require.NoError(t, err)
		require.NoError(t, a.redis.LPush(ctx, a.store.Journal(), text).Err())
	}
	for _, change := range forged {
		push(change)
	}
	push(func(e *access.Entry) { e.Who, e.Sink = "cli:\x1b[31mann\u009b1m\u202e@host", "balance\r\n" })
	page, err = a.Journal(ctx, access.JournalQuery{Limit: 100})
	require.NoError(t, err)
	require.Zero(t, a.redis.LLen(ctx, a.store.Journal()).Val(), "none blocks the others")
	require.Len(t, page.Entries, len(forged)+2)
	notes := 0
	for _, e := range page.Entries {
		switch e.Action {
		case access.Refund:
			require.NotContains(t, e.Details, access.ThroughRedis)
			continue
		case access.PauseSink:
			require.Equal(t, "cli:?[31mann?1m?@host", e.Who)
			require.Equal(t, "balance??", e.Sink)
		default:
			notes++
			require.EqualValues(t, "unreadable", e.Action)
		}
		require.Contains(t, e.Details, access.ThroughRedis)
		require.WithinDuration(t, time.Now(), e.Time, time.Minute)
	}
	require.Equal(t, len(forged), notes)
}

// While the ledger is down, the list in Redis is full. A further action still succeeds, but its entry is only logged.
// When the ledger is back, the waiting entries move, and the list accepts entries again.
func TestJournalHasABound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "ledger.db"), "")
	core, logs := observer.New(zap.WarnLevel)
	a.log = zap.New(core)
	there, dsn := a.ledger, a.Config.Ledger.DSN
	a.Config.Ledger.DSN = configs.Secret(filepath.Join(t.TempDir(), "away", "ledger.db"))
	a.ledger = a.newLedger()
	ctx := access.As(t.Context(), access.Actor{Who: "key:k"})
	act := func(n int) {
		entry := About(ctx, access.PauseSink, "")
		entry.Details = map[string]any{"n": n}
		done := false
		require.NoError(t, a.Recorded(ctx, entry, func(context.Context, *access.Entry) error { done = true; return nil }))
		require.True(t, done)
	}
	act(1)
	require.EqualValues(t, 1, a.redis.LLen(ctx, a.store.Journal()).Val())
	text := a.redis.LIndex(ctx, a.store.Journal(), 0).Val()
	fill := slices.Repeat([]any{text}, 10_000)
	for left := maxWaiting - 1; left > 0; left -= len(fill) {
		require.NoError(t, a.redis.LPush(ctx, a.store.Journal(), fill[:min(left, len(fill))]...).Err())
	}
	act(2)
	require.EqualValues(t, maxWaiting, a.redis.LLen(ctx, a.store.Journal()).Val())
	missing := logs.FilterMessage("an action is not in the journal").All()
	require.Len(t, missing, 1)
	require.EqualValues(t, 2, missing[0].ContextMap()["entry"].(*access.Entry).Details["n"], "the log has the whole entry")

	a.ledger, a.Config.Ledger.DSN = there, dsn
	require.NoError(t, a.redis.LTrim(ctx, a.store.Journal(), 0, 0).Err()) // the removed entries equal this one
	act(3)
	require.Zero(t, a.redis.LLen(ctx, a.store.Journal()).Val())
	page, err := a.Journal(ctx, access.JournalQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
}

// The journal has log-ins and log-outs with the caller's address. Wrong keys get one entry a minute for log-ins and one
// for other requests, whatever the number of requests and of addresses; the next entry counts the others.
func TestJournalHasLogIns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "ledger.db"), "")
	as := func(who, address string) context.Context {
		return access.As(t.Context(), access.Actor{Who: who, Address: address})
	}
	a.LoggedIn(as("key:ann", "192.0.2.7"), access.LogIn, nil)
	for i := range 100 {
		at := fmt.Sprintf("198.51.100.%d", i)
		a.LoggedIn(as(access.UnknownCaller, at), access.LogIn, access.ErrUnauthorized)
		a.Denied(as(access.UnknownCaller, at), access.ReadSinks, "", access.ErrUnauthorized)
		a.Denied(as(access.UnknownCaller, at), access.ReadTrails, "", access.ErrUnauthorized)
	}
	a.LoggedIn(as("key:gate", "192.0.2.8"), access.LogIn, access.ErrForbidden)
	a.LoggedIn(as("key:ann", "192.0.2.7"), access.LogOut, nil)
	page, err := a.Journal(t.Context(), access.JournalQuery{Limit: 100})
	require.NoError(t, err)
	var got []string
	for _, e := range page.Entries {
		got = append(got, fmt.Sprint(e.Who, " ", e.Action, " ", e.Outcome, " ", e.Details["address"]))
	}
	require.ElementsMatch(t, []string{"key:ann log_in done 192.0.2.7", "unknown log_in denied 198.51.100.0",
		"unknown read_sinks denied 198.51.100.0",
		"key:gate log_in denied 192.0.2.8", "key:ann log_out done 192.0.2.7"}, got)
}

// A key that may not spend is recorded as other denials are: with its address, and at most 20 times a minute.
func TestDenialsByMoneyAreBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "ledger.db"), "")
	ctx := access.As(t.Context(), access.Actor{Who: "key:k", Address: "192.0.2.7"})
	for i := range 100 {
		refuse := func(context.Context, *access.Entry) error {
			return hongbao.Errorf(hongbao.ClassPermanent, "too much: %w", access.ErrMayNotSpend)
		}
		do := a.Recorded
		if i%2 == 0 {
			do = a.InLedger
		}
		entry := About(ctx, access.CreateCampaign, "rain")
		entry.Details = map[string]any{"total": 1000}
		require.ErrorIs(t, do(ctx, entry, refuse), access.ErrMayNotSpend)
	}
	page, err := a.Journal(t.Context(), access.JournalQuery{Limit: 100})
	require.NoError(t, err)
	require.Len(t, page.Entries, access.MostDenials)
	for _, e := range page.Entries {
		require.Equal(t, access.OutcomeDenied, e.Outcome)
		require.Equal(t, "192.0.2.7", e.Details["address"])
		require.EqualValues(t, 1000, e.Details["total"])
		require.Contains(t, e.Details["error"], "may not spend")
	}
}
