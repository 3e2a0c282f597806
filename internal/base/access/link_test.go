package access

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A link shows one campaign on every replica until its end, until a person ends it, and until its key ends. It is no
// session, and no session is a link.
func TestLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, key := NewKey(RoleTreasurer, nil)
		b := &fakeLedger{keys: []Key{k}}
		here, there := NewAuthority(b), NewAuthority(b)
		times := SessionTimes{Lasts: 2 * time.Hour, Idle: 2 * time.Hour}
		begin := func() (string, Session) {
			text, s, err := here.StartLink(t.Context(), k.ID, Session{Campaign: "rain", Why: "growth"}, time.Now().Add(time.Hour))
			require.NoError(t, err)
			for _, a := range []*Authority{here, there} {
				who, err := a.Link(t.Context(), text)
				require.NoError(t, err)
				require.Equal(t, Caller{Key: k.ID, Role: RoleViewer, Campaigns: []string{"rain"}, Expires: s.Expires, Link: &s}, who)
				for _, rule := range Rules() {
					require.Equal(t, rule.Action == ReadCampaigns, who.Check(rule.Action, "rain") == nil, rule.Action)
				}
				require.ErrorIs(t, who.Check(ReadCampaigns, "snow"), ErrNotInScope)
			}
			return text, s
		}
		over := func(text string) {
			t.Helper()
			wait(t, maxAge)
			for _, a := range []*Authority{here, there} {
				_, err := a.Link(t.Context(), text)
				require.ErrorIs(t, err, ErrUnauthorized)
			}
			links, err := there.Links(t.Context(), "rain")
			require.NoError(t, err)
			require.Empty(t, links)
		}
		text, s := begin()
		require.NotContains(t, b.sessions[0].Hash, text)
		require.Len(t, text, linkLen)
		_, err := here.Session(t.Context(), text)
		require.ErrorIs(t, err, ErrUnauthorized)
		require.NoError(t, here.KeepSession(t.Context(), text, times))
		require.Equal(t, s.Expires, b.sessions[0].Expires, "its end does not move")
		id, err := here.StartSession(t.Context(), key, times)
		require.NoError(t, err)
		_, err = here.Link(t.Context(), id)
		require.ErrorIs(t, err, ErrUnauthorized)
		links, err := here.Links(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, []Session{s}, links)
		require.NoError(t, here.EndLink(t.Context(), s.Hash))
		over(text)

		text, _ = begin()
		wait(t, time.Hour)
		over(text)

		text, _ = begin()
		b.set(func() { b.keys = nil })
		over(text)
		_, _, err = here.StartLink(t.Context(), k.ID, Session{Campaign: "rain"}, time.Now().Add(time.Hour))
		require.ErrorIs(t, err, ErrUnauthorized)
	})
}
