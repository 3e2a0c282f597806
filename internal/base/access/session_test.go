package access

import (
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
			id, err := here.StartSession(t.Context(), text, time.Hour)
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
		_, err = here.StartSession(t.Context(), text, time.Hour)
		require.ErrorIs(t, err, ErrUnauthorized)
	})
}

func TestNoSessionWithoutTheLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, text := NewKey(RoleViewer, nil)
		b := &fakeLedger{keys: []Key{k}}
		a := NewAuthority(b)
		id, err := a.StartSession(t.Context(), text, time.Hour)
		require.NoError(t, err)
		b.set(func() { b.err = hongbao.Outagef(hongbao.ClassTransient, "gone") })
		_, err = a.StartSession(t.Context(), text, time.Hour)
		require.True(t, hongbao.IsOutage(err))
		_, err = a.Session(t.Context(), id)
		require.NoError(t, err, "known sessions still work")
		wait(t, maxAge)
		_, err = a.Session(t.Context(), id)
		require.True(t, hongbao.IsOutage(err))
	})
}
