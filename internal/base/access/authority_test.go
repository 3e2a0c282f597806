package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// wait advances synctest's clock.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	require.True(t, retry.Pause(t.Context(), d))
}

// fakeLedger is a fake ledger with keys. A test can make it unreachable.
type fakeLedger struct {
	mu    sync.Mutex
	keys  []Key
	err   error
	hangs bool
	reads atomic.Int64

	sessions []Session
	kept     atomic.Int64
}

func (b *fakeLedger) Live(ctx context.Context) (Live, error) {
	b.reads.Add(1)
	b.mu.Lock()
	hangs := b.hangs
	b.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return Live{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Live{slices.Clone(b.keys), slices.Clone(b.sessions)}, b.err
}

func (b *fakeLedger) AddSession(ctx context.Context, s Session) error {
	b.mu.Lock()
	hangs := b.hangs
	b.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.sessions = append(b.sessions, s)
	}
	return b.err
}

func (b *fakeLedger) KeepSession(_ context.Context, hash string, expires time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Add(1)
	for i := range b.sessions {
		if b.sessions[i].Hash == hash {
			b.sessions[i].Expires = expires
		}
	}
	return b.err
}

func (b *fakeLedger) EndSession(_ context.Context, hash string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = slices.DeleteFunc(b.sessions, func(s Session) bool { return s.Hash == hash })
	return b.err
}

func (b *fakeLedger) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func TestOneRefusalForAllThatIsNotGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, text := NewKey(RoleOperator, []string{"rain"})
		other, otherText := NewKey(RoleViewer, nil)
		expiring, expiringText := NewKey(RoleViewer, nil)
		expiring.Expires = time.Now().Add(time.Minute)
		a := NewAuthority(&fakeLedger{keys: []Key{good, other, expiring}})
		who, err := a.Identify(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, Caller{Key: good.ID, Role: RoleOperator, Campaigns: []string{"rain"}}, who)
		_, err = a.Identify(t.Context(), expiringText)
		require.NoError(t, err)
		_, unknown := NewKey(RoleTreasurer, nil)
		_, otherSecret, _ := split(otherText)
		refusal := ""
		wait(t, time.Minute)
		for _, bad := range []string{
			"", "hb_", "hb", "hb__", text[:len(text)-1], text + "0", text[1:], "HB" + text[2:], strings.ToUpper(text),
			unknown, expiringText, "hb_" + good.ID + "_" + otherSecret, "hb_" + good.ID + "_" + good.Hash,
			" " + text, text + "\n", strings.Repeat("a", 1<<20), "hb_" + good.ID + "_" + strings.Repeat("\x00", 64),
		} {
			_, err := a.Identify(t.Context(), bad)
			require.ErrorIs(t, err, ErrUnauthorized, "%.100q", bad)
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
			if refusal == "" {
				refusal = err.Error()
			}
			require.Equal(t, refusal, err.Error(), "%.100q", bad)
		}
	})
}

// After a rotation the old secret is accepted until OldUntil, and refused from then on.
func TestRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, old := NewKey(RoleViewer, nil)
		text, hash := NewSecret(k.ID)
		require.NotEqual(t, old, text)
		k.OldHash, k.OldUntil, k.Hash = k.Hash, time.Now().Add(time.Minute), hash
		a := NewAuthority(&fakeLedger{keys: []Key{k}})
		for _, good := range []string{text, old} {
			_, err := a.Identify(t.Context(), good)
			require.NoError(t, err)
		}
		wait(t, time.Minute)
		_, err := a.Identify(t.Context(), old)
		require.ErrorIs(t, err, ErrUnauthorized)
		_, err = a.Identify(t.Context(), text)
		require.NoError(t, err)
	})
}

// A new key works immediately, and a revoked key stops working after 10 s. Meanwhile the ledger is read once in 5 s.
func TestChangesAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, text := NewKey(RoleViewer, nil)
		late, lateText := NewKey(RoleViewer, nil)
		b := &fakeLedger{keys: []Key{k}}
		a := NewAuthority(b)
		for range 20 {
			_, err := a.Identify(t.Context(), text)
			require.NoError(t, err)
			wait(t, time.Second)
		}
		require.LessOrEqual(t, b.reads.Load(), int64(5))

		_, err := a.Identify(t.Context(), lateText)
		require.ErrorIs(t, err, ErrUnauthorized)
		b.set(func() { b.keys = []Key{k, late} })
		_, err = a.Identify(t.Context(), lateText)
		require.NoError(t, err, "a new key works at once")

		b.set(func() { b.keys = []Key{late} })
		wait(t, maxAge)
		_, err = a.Identify(t.Context(), text)
		require.ErrorIs(t, err, ErrUnauthorized)
	})
}

// However many unknown keys arrive, they cause at most five reads of the ledger a second.
func TestUnknownKeysCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &fakeLedger{}
		a := NewAuthority(b)
		begun := time.Now()
		for range 10 {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					_, text := NewKey(RoleViewer, nil)
					_, err := a.Identify(t.Context(), text)
					require.ErrorIs(t, err, ErrUnauthorized)
				})
			}
			wg.Wait()
		}
		require.LessOrEqual(t, b.reads.Load(), 1+int64(time.Since(begun)/unknownAge))
		require.LessOrEqual(t, time.Since(begun), 10*unknownAge, "concurrent requests share one read")
	})
}

// outages runs a test for each way in which the ledger can be unreachable. Each test runs in a synctest bubble.
func outages(t *testing.T, test func(t *testing.T, disconnect func(*fakeLedger))) {
	t.Helper()
	for name, disconnect := range map[string]func(*fakeLedger){
		"refuses": func(b *fakeLedger) { b.err = errors.New("connection refused") },
		"hangs":   func(b *fakeLedger) { b.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, disconnect) })
		})
	}
}

// While the ledger is unreachable, the cached list is valid until it is 10 s old. After that, callers get a Transient
// error, not ErrUnauthorized.
func TestLedgerAway(t *testing.T) {
	t.Parallel()
	outages(t, func(t *testing.T, disconnect func(*fakeLedger)) {
		k, text := NewKey(RoleViewer, nil)
		_, unknown := NewKey(RoleViewer, nil)
		b := &fakeLedger{keys: []Key{k}}
		a := NewAuthority(b)
		begin := time.Now()
		_, err := a.Identify(t.Context(), text)
		require.NoError(t, err)
		b.set(func() { disconnect(b) })
		for time.Since(begin) < maxAge-readTimeout {
			_, err = a.Identify(t.Context(), text)
			require.NoError(t, err, time.Since(begin))
			wait(t, time.Second/2)
		}
		wait(t, max(0, maxAge-time.Since(begin)))
		for _, key := range []string{text, unknown} {
			_, err = a.Identify(t.Context(), key)
			require.True(t, hongbao.IsOutage(err), err)
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
			require.NotErrorIs(t, err, ErrUnauthorized)
		}
		_, err = a.Identify(t.Context(), "nonsense")
		require.ErrorIs(t, err, ErrUnauthorized, "no ledger is needed to refuse this")

		b.set(func() { b.err, b.hangs = nil, false })
		wait(t, failedAge)
		_, err = a.Identify(t.Context(), text)
		require.NoError(t, err)
	})
}

// A request whose deadline ends does not wait until another request has read the list.
func TestIdentifyKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &fakeLedger{hangs: true}
		a := NewAuthority(b)
		_, text := NewKey(RoleViewer, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.Identify(t.Context(), text)
			require.True(t, hongbao.IsOutage(err))
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := a.Identify(ctx, text)
		require.True(t, hongbao.IsOutage(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Millisecond, time.Since(begin))
		wg.Wait()
	})
}

func TestKeyCheckNamesEverything(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := Key{Role: "root", Campaigns: []string{"a b*", "*", "rain"}, Expires: now, Note: "two\nlines"}
	err := k.Check(now)
	for _, part := range []string{`role "root"`, `"a b*"`, "* is not a scope", "expired", "note"} {
		require.ErrorContains(t, err, part)
	}
	k = Key{Role: RoleGateway, Campaigns: []string{"rain", "spring-*"}, Expires: now.Add(1), Note: "ann's"}
	require.NoError(t, k.Check(now))
	k.Campaigns = make([]string, maxCampaigns+1)
	require.ErrorContains(t, k.Check(now), "prefix*")
}

// Only the keys of the roles client and accountant have a client, and these keys have no campaigns.
func TestKeyOfAClient(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, role := range Roles() {
		bank := role == RoleClient || role == RoleAccountant
		without, with := Key{Role: role}, Key{Role: role, Client: "worker"}
		require.Equal(t, bank, without.Check(now) != nil, role)
		require.Equal(t, bank, with.Check(now) == nil, role)
		for _, bad := range []Key{{Role: role, Client: "a b"}, {Role: role, Client: "worker", Campaigns: []string{"rain"}}} {
			require.Error(t, bad.Check(now), role)
		}
	}
	k, text := NewKey(RoleClient, nil)
	k.Client = "worker"
	who, err := NewAuthority(&fakeLedger{keys: []Key{k}}).Identify(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, Caller{Key: k.ID, Role: RoleClient, Client: "worker"}, who)
}

// Ready fails within 10 s after the ledger goes down. From then on it reads the ledger at most once a second.
func TestReady(t *testing.T) {
	t.Parallel()
	outages(t, func(t *testing.T, disconnect func(*fakeLedger)) {
		b := &fakeLedger{}
		a := NewAuthority(b)
		require.NoError(t, a.Ready(t.Context()))
		b.set(func() { disconnect(b) })
		begin := time.Now()
		for time.Since(begin) < maxAge-readTimeout {
			require.NoError(t, a.Ready(t.Context()), time.Since(begin))
			wait(t, time.Second/10)
		}
		wait(t, maxAge-time.Since(begin))
		before, since := b.reads.Load(), time.Now()
		for range 100 {
			require.True(t, hongbao.IsOutage(a.Ready(t.Context())))
			wait(t, time.Second/10)
		}
		require.LessOrEqual(t, b.reads.Load()-before, 1+int64(time.Since(since)/failedAge))
		b.set(func() { b.err, b.hangs = nil, false })
		wait(t, failedAge)
		require.NoError(t, a.Ready(t.Context()))
	})
}

// Ends has the next end of each role, also without a request and while the ledger is unreachable.
func TestEnds(t *testing.T) {
	t.Parallel()
	outages(t, func(t *testing.T, disconnect func(*fakeLedger)) {
		made := time.Now()
		key := func(role Role, lasts time.Duration) Key {
			k, _ := NewKey(role, nil)
			if k.Created = made; lasts > 0 {
				k.Expires = made.Add(lasts)
			}
			return k
		}
		b := &fakeLedger{}
		a := NewAuthority(b)
		b.set(func() { disconnect(b) })
		require.Empty(t, a.Ends(t.Context()))
		b.set(func() { b.err, b.hangs = nil, false })
		wait(t, failedAge)
		b.keys = []Key{key(RoleGateway, KeyTime+1), key(RoleGateway, KeyTime), key(RoleGateway, 0), key(RoleViewer, EndsSoon),
			key(RoleOperator, 0), key(RoleClient, EndsSoon+time.Hour)}
		want := map[Role]time.Time{RoleGateway: made.Add(KeyTime), RoleClient: made.Add(EndsSoon + time.Hour)}
		require.Equal(t, want, a.Ends(t.Context()))
		b.set(func() { disconnect(b) })
		wait(t, maxAge)
		require.Equal(t, want, a.Ends(t.Context()))
		wait(t, EndsSoon+time.Hour)
		delete(want, RoleClient)
		require.Equal(t, want, a.Ends(t.Context()), "a key that has ended has no next end")
	})
}

// Each key has a random secret of 256 bits.
func TestSecrets(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		k, text := NewKey(RoleViewer, nil)
		id, secret, ok := split(text)
		require.True(t, ok)
		require.Equal(t, k.ID, id)
		require.Len(t, secret, 64)
		require.Equal(t, Hash(secret), k.Hash)
		require.False(t, seen[id] || seen[secret])
		seen[id], seen[secret] = true, true
	}
}

// While the ledger is unreachable, actions that must work without it use the last list for 15 minutes. All other
// actions fail.
func TestLedgerAwayForLong(t *testing.T) {
	t.Parallel()
	outages(t, func(t *testing.T, disconnect func(*fakeLedger)) {
		k, text := NewKey(RoleOperator, nil)
		_, unknown := NewKey(RoleOperator, nil)
		b := &fakeLedger{keys: []Key{k}}
		a := NewAuthority(b)
		ask := func(key string, action Action) error {
			_, err := a.Identify(For(t.Context(), action), key)
			return err
		}
		require.NoError(t, ask(text, PauseCampaign))
		wait(t, time.Hour) // outageAge does not apply: the list is old, but the ledger is reachable
		b.set(func() { b.keys = nil })
		require.ErrorIs(t, ask(text, PauseCampaign), ErrUnauthorized)
		b.set(func() { b.keys = []Key{k} })
		wait(t, unknownAge)
		require.NoError(t, ask(text, PauseCampaign))
		begin := time.Now()
		b.set(func() { disconnect(b) })
		for time.Since(begin) < outageAge-readTimeout {
			for _, action := range []Action{ReadCampaigns, PauseCampaign, ResumeCampaign, ReadSinks, PauseSink, ResumeSink, Grab,
				BookCredits, ReadCredits, ReadAccounts} {
				require.NoError(t, ask(text, action), time.Since(begin))
			}
			if time.Since(begin) > maxAge {
				require.True(t, hongbao.IsOutage(ask(text, CloseCampaign)))
				require.True(t, hongbao.IsOutage(ask(text, ReadLetters)))
				require.True(t, hongbao.IsOutage(ask(unknown, PauseCampaign)))
			}
			wait(t, 7*time.Second)
		}
		wait(t, outageAge-time.Since(begin))
		require.True(t, hongbao.IsOutage(ask(text, PauseCampaign)))
	})
}
