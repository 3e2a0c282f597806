package access

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

func testSessions(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	k, _ := access.NewKey(access.RoleViewer, nil)
	_, err := l.AddKey(ctx, k)
	require.NoError(t, err)
	session := func(name string, lasts time.Duration) access.Session {
		return access.Session{Hash: name, Key: k.ID, SecretHash: k.Hash, Begun: time.Now().UTC().Truncate(time.Millisecond),
			Expires: time.Now().Add(lasts).UTC().Truncate(time.Millisecond)}
	}
	first := session("first", time.Hour)
	require.NoError(t, l.AddSession(ctx, first))
	require.NoError(t, l.AddSession(ctx, session("over", -time.Second)))
	live, err := l.Live(ctx)
	require.NoError(t, err)
	require.Equal(t, []access.Session{first}, live.Sessions)
	require.Len(t, live.Keys, 1)
	ends := func() time.Time {
		live, err := l.Live(ctx)
		require.NoError(t, err)
		require.Len(t, live.Sessions, 1)
		return live.Sessions[0].Expires
	}
	later := first.Expires.Add(time.Minute)
	require.NoError(t, l.KeepSession(ctx, "first", later))
	require.Equal(t, later, ends())
	require.NoError(t, l.KeepSession(ctx, "first", first.Expires))
	require.Equal(t, later, ends(), "it moves no end back")
	require.NoError(t, l.AddSession(ctx, session("gone", -time.Second)))
	require.NoError(t, l.KeepSession(ctx, "gone", later))
	require.Equal(t, later, ends(), "a session that has ended stays so")
	for i := range maxSessions {
		require.NoError(t, l.AddSession(ctx, session(fmt.Sprintf("%03d", i), time.Hour)))
	}
	live, err = l.Live(ctx)
	require.NoError(t, err)
	require.Len(t, live.Sessions, maxSessions, "the oldest gave way")
	for range 2 {
		require.NoError(t, l.EndSession(ctx, "049"))
	}
	live, err = l.Live(ctx)
	require.NoError(t, err)
	require.Len(t, live.Sessions, maxSessions-1)
	stranger := session("stranger", time.Hour)
	stranger.Key = "nobody"
	require.Error(t, l.AddSession(ctx, stranger))

	_, err = l.RevokeKey(ctx, k.ID)
	require.NoError(t, err)
	live, err = l.Live(ctx)
	require.NoError(t, err)
	require.Empty(t, live.Keys)
}

// A link is a session with a campaign. Log-ins of its key do not end it, and it ends no session.
func testLinks(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	k, _ := access.NewKey(access.RoleOperator, nil)
	_, err := l.AddKey(ctx, k)
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Millisecond)
	session := func(name, campaign string) access.Session {
		return access.Session{Hash: name, Key: k.ID, SecretHash: k.Hash, Begun: now, Expires: now.Add(time.Hour), Campaign: campaign}
	}
	link := session("link", "rain")
	link.Money, link.Why = true, "for the growth team 增长"
	require.NoError(t, l.AddSession(ctx, link))
	live, err := l.Live(ctx)
	require.NoError(t, err)
	require.Equal(t, []access.Session{link}, live.Sessions)
	for i := range maxSessions + 1 {
		require.NoError(t, l.AddSession(ctx, session(fmt.Sprintf("%03d", i), "")))
	}
	for i := range maxLinks - 1 {
		require.NoError(t, l.AddSession(ctx, session(fmt.Sprint("link", i), "rain")))
	}
	err = l.AddSession(ctx, session("more", "rain"))
	require.ErrorContains(t, err, "campaign rain has 20 links already: end some first")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.NoError(t, l.AddSession(ctx, session("other", "snow")))
	live, err = l.Live(ctx)
	require.NoError(t, err)
	require.Len(t, live.Sessions, maxSessions+maxLinks+1)
	require.NoError(t, l.EndSession(ctx, "link"))
	require.NoError(t, l.AddSession(ctx, session("more", "rain")))
}
