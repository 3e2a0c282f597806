package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page for a stage shows no money unless its address asks for it, and is there for who may see the campaign.
func TestTheRainOnAStage(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.live.GrantedSum = 12_345
	page := f.ask(t, "viewer", "/campaigns/rain/rain", nil).Body.String()
	for _, part := range []string{"<h1>Spring rain</h1>", "990 left of 1,000 packets", `data-page="/campaigns/rain/rain"`, `href="/campaigns/rain"`} {
		require.Contains(t, page, part)
	}
	require.NotContains(t, page, "CNY")
	page = f.ask(t, "viewer", "/campaigns/rain/rain?money=1", nil).Body.String()
	require.Contains(t, page, "123.45 CNY")
	require.Contains(t, page, `data-page="/campaigns/rain/rain?money=1"`)
	require.Contains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), `href="/campaigns/rain/rain"`)
	for key, path := range map[string]string{"viewer:tea": "/campaigns/rain/rain", "viewer": "/campaigns/none/rain"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, key, path, nil).Code, key)
	}
	for path, want := range map[string]bool{"/campaigns/a/rain": true, "/campaigns/rain": false, "/rain": false, "/campaigns/a/b/rain": false} {
		_, _, ok := rainOf(path)
		require.Equal(t, want, ok, path)
	}
}
