package find

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

// The journal has each read of a user's data once in ten minutes for each reader, with the reader's address.
func TestJournalHasReads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "ledger.db"), "")
	ann := access.As(t.Context(), access.Actor{Who: "key:ann", Address: "192.0.2.7"})
	bob := access.As(t.Context(), access.Actor{Who: "key:bob"})
	for range 3 {
		a.HasRead(ann, access.Read{Action: access.ReadTrails, Campaign: "rain", User: "u1"})
		a.HasRead(ann, access.Read{Action: access.ReadTrails, Campaign: "rain", User: "u2"})
		a.HasRead(bob, access.Read{Action: access.ReadGrants, Campaign: "snow", User: "u1"})
	}
	_, err := Of(a).Trail(ann, TrailOf{Campaign: "none", User: "u3"})
	require.Error(t, err, "a read that fails shows nothing, and leaves no entry")
	page, err := a.Journal(t.Context(), access.JournalQuery{Limit: 100})
	require.NoError(t, err)
	var got []string
	for _, e := range page.Entries {
		got = append(got, fmt.Sprint(e.Who, " ", e.Action, " ", e.Campaign, " ", e.Outcome, " ", e.Details))
	}
	u1, u2 := access.Hash("u1"), access.Hash("u2")
	require.ElementsMatch(t, []string{"key:ann read_trails rain done map[address:192.0.2.7 user_sha256:" + u1 + "]",
		"key:ann read_trails rain done map[address:192.0.2.7 user_sha256:" + u2 + "]",
		"key:bob read_grants snow done map[user_sha256:" + u1 + "]"}, got)
}
