package access

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// Every replica accepts a new session at once. A session ends with EndSession, with its lifetime, and with its key or
// its secret.
func TestSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, text := NewKey(RoleOperator, []string{"rain"})
		b := &fakeLedger{keys: []Key{k}}
		here, there := NewAuthority(b), NewAuthority(b)
		begin := func() string {
			id, err := here.StartSession(t.Context(), text, SessionTimes{Lasts: time.Hour, Idle: time.Hour})
			require.NoError(t, err)
			for _, a := range []*Authority{here, there} {
				who, err := a.Session(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, Caller{Key: k.ID, Role: RoleOperator, Campaigns: []string{"rain"}}, who)
			}
			return id
		}
		over := func(id string) {
			t.Helper()
			wait(t, maxAge)
			for _, a := range []*Authority{here, there} {
				_, err := a.Session(t.Context(), id)
				require.ErrorIs(t, err, ErrUnauthorized)
			}
		}
		id := begin()
		require.NotContains(t, b.sessions[0].Hash, id)
		require.NoError(t, here.EndSession(t.Context(), id))
		_, err := here.Session(t.Context(), id)
		require.ErrorIs(t, err, ErrUnauthorized, "ended at once on the replica that ended it")
		over(id)

		id = begin()
		wait(t, time.Hour)
		over(id)

		id = begin()
		fresh, hash := NewSecret(k.ID)
		b.set(func() {
			b.keys[0].OldHash, b.keys[0].OldUntil, b.keys[0].Hash = k.Hash, time.Now().Add(time.Minute), hash
		})
		wait(t, maxAge)
		_, err = there.Session(t.Context(), id)
		require.NoError(t, err, "the old secret is still valid")
		wait(t, time.Minute)
		over(id)

		text = fresh
		id = begin()
		b.set(func() { b.keys = nil })
		over(id)
		for _, bad := range []string{"", "x", id[1:], Hash(id), "hb_" + id} {
			_, err := here.Session(t.Context(), bad)
			require.ErrorIs(t, err, ErrUnauthorized)
		}
		_, err = here.StartSession(t.Context(), text, SessionTimes{Lasts: time.Hour, Idle: time.Hour})
		require.ErrorIs(t, err, ErrUnauthorized)
	})
}

// While the ledger is unreachable, the owner of a cached key can log in, for the actions that must work without the
// ledger. Only this process knows the session, and it ends when the ledger is back.
func TestSessionWithoutTheLedger(t *testing.T) {
	t.Parallel()
	outages(t, func(t *testing.T, disconnect func(*fakeLedger)) {
		k, text := NewKey(RoleOperator, nil)
		b := &fakeLedger{keys: []Key{k}}
		here, there := NewAuthority(b), NewAuthority(b)
		ctx, cancel := context.WithCancel(t.Context())
		var refreshing sync.WaitGroup
		for _, a := range []*Authority{here, there} {
			refreshing.Go(func() { a.Refresh(ctx) })
		}
		wait(t, time.Hour) // nobody uses the key
		b.set(func() { disconnect(b) })
		wait(t, time.Minute)
		login := For(t.Context(), ReadCampaigns)
		times := SessionTimes{Lasts: time.Hour, Idle: time.Hour}
		_, err := here.StartSession(t.Context(), text, times)
		require.True(t, hongbao.IsOutage(err), "not for every action")
		id, err := here.StartSession(login, text, times)
		require.NoError(t, err)
		_, wrong := NewKey(RoleOperator, nil)
		_, err = here.StartSession(login, wrong, times)
		require.True(t, hongbao.IsOutage(err))
		for _, action := range []Action{ReadCampaigns, PauseCampaign, PauseSink} {
			_, err = here.Session(For(t.Context(), action), id)
			require.NoError(t, err, action)
		}
		_, err = here.Session(For(t.Context(), CloseCampaign), id)
		require.True(t, hongbao.IsOutage(err))
		_, err = there.Session(For(t.Context(), ReadCampaigns), id)
		require.True(t, hongbao.IsOutage(err))
		require.Empty(t, b.sessions)

		b.set(func() { b.err, b.hangs = nil, false })
		wait(t, 2*renewAge)
		_, err = here.Session(For(t.Context(), ReadCampaigns), id)
		require.ErrorIs(t, err, ErrUnauthorized)
		cancel()
		refreshing.Wait()
	})
}

func TestNoSessionWithoutTheLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, text := NewKey(RoleViewer, nil)
		b := &fakeLedger{keys: []Key{k}}
		a := NewAuthority(b)
		id, err := a.StartSession(t.Context(), text, SessionTimes{Lasts: time.Hour, Idle: time.Hour})
		require.NoError(t, err)
		b.set(func() { b.err = hongbao.Outagef(hongbao.ClassTransient, "gone") })
		_, err = a.StartSession(t.Context(), text, SessionTimes{Lasts: time.Hour, Idle: time.Hour})
		require.True(t, hongbao.IsOutage(err))
		_, err = a.Session(t.Context(), id)
		require.NoError(t, err, "known sessions still work")
		wait(t, maxAge)
		_, err = a.Session(t.Context(), id)
		require.True(t, hongbao.IsOutage(err))
	})
}

// A session ends after its idle time without a request, on each replica. Requests on either replica move the end for
// both, but not beyond the session's longest time.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, text := NewKey(RoleOperator, nil)
		b := &fakeLedger{keys: []Key{k}}
		replicas := []*Authority{NewAuthority(b), NewAuthority(b)}
		times := SessionTimes{Lasts: 2 * time.Hour, Idle: 30 * time.Minute}
		begin := func() string {
			id, err := replicas[0].StartSession(t.Context(), text, times)
			require.NoError(t, err)
			return id
		}
		use := func(a *Authority, id string) {
			t.Helper()
			_, err := a.Session(t.Context(), id)
			require.NoError(t, err)
			require.NoError(t, a.KeepSession(t.Context(), id, times))
		}
		over := func(id string) {
			t.Helper()
			for _, a := range replicas {
				_, err := a.Session(t.Context(), id)
				require.ErrorIs(t, err, ErrUnauthorized)
			}
		}
		id := begin()
		wait(t, 30*time.Minute)
		over(id)

		id = begin()
		for i := range 4 { // 100 minutes on alternate replicas
			wait(t, 25*time.Minute)
			use(replicas[i%2], id)
		}
		wait(t, 19*time.Minute)
		use(replicas[0], id)
		wait(t, time.Minute)
		over(id)

		id = begin()
		for range 29 * 6 { // the looks of an open page move nothing
			wait(t, 10*time.Second)
			for _, a := range replicas {
				_, err := a.Session(t.Context(), id)
				require.NoError(t, err)
			}
		}
		wait(t, time.Minute)
		over(id)

		id = begin()
		wait(t, 5*time.Second)
		kept := b.kept.Load()
		for range 100 {
			use(replicas[0], id)
		}
		require.Equal(t, kept, b.kept.Load(), "not each request writes into the ledger")
		wait(t, time.Minute)
		for range 100 {
			use(replicas[0], id)
		}
		require.Equal(t, kept+1, b.kept.Load())
		require.NoError(t, replicas[1].EndSession(t.Context(), id))
		wait(t, time.Minute)
		require.NoError(t, replicas[0].KeepSession(t.Context(), id, times), "it has not noticed the logout")
		over(id)
	})
}
