package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
)

// A key ends after 90 days unless its creator names another end. A rotation keeps the end, or sets the named one.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	ends := func(want time.Time, args ...string) string {
		t.Helper()
		var k apikeys.NewKey
		require.NoError(t, json.Unmarshal([]byte(d.ok(append([]string{"key", "--json"}, args...)...)), &k))
		require.WithinDuration(t, want, k.Expires, time.Minute)
		return k.ID
	}
	never, in90, in30 := time.Time{}, time.Now().Add(90*24*time.Hour), time.Now().Add(30*24*time.Hour)
	first := ends(in90, "create", "--role", "viewer")
	ends(in30, "create", "--role", "viewer", "--expires", "720h")
	last := ends(never, "create", "--role", "viewer", "--expires", "never")
	ends(never, "rotate", last)
	ends(in90, "rotate", first)
	d.refused(1, []string{"key", "rotate", first}, "hongbao key create", "--overlap 0s") // the repeat after exit code 5
	ends(in30, "rotate", first, "--expires", "720h", "--overlap", "0s")
	ends(never, "rotate", first, "--expires", "never")
	require.Regexp(t, last+` +viewer +.* never +- *\n`, d.ok("key", "list"))
	require.Contains(t, d.ok("journal"), `"expires":"never"`)
	d.refused(2, []string{"key", "create", "--role", "viewer", "--expires", "soon"}, "--expires")
	d.refused(1, []string{"key", "rotate", first, "--overlap", "0s", "--expires", "2020-01-01T00:00:00Z"}, "expired")
	require.Equal(t, 2160*time.Hour, access.KeyTime)

	require.NotContains(t, d.run("doctor").out, "API key")
	soon := ends(time.Now().Add(6*24*time.Hour), "create", "--role", "viewer", "--note", "ann", "--expires", "144h")
	out := d.run("doctor").out
	require.Contains(t, out, "API key "+soon+` (role viewer, note "ann") ends at `)
	require.Contains(t, out, "hongbao key rotate "+soon)
}
