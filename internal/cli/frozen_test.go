package cli

import (
	"html"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The only shard is frozen. The commands print what they can read, and name `hongbao recover`.
func TestCommandsOnAFrozenShard(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Shard(0).Keys.Meta(), "frozen", "1").Err())
	for _, c := range []struct {
		args []string
		head string
	}{{[]string{"status"}, "SINK"}, {[]string{"sink", "list"}, "WAITING"}} {
		r := d.refused(5, c.args, "`hongbao recover`")
		require.Contains(t, r.out, c.head)
		require.Contains(t, r.out+r.err, "balance")
	}
	d.refused(5, []string{"audit"}, "`hongbao recover`")
	d.refused(5, []string{"campaign", "pause", "rain", "--by", "ann", "--why", "test"}, "`hongbao recover`")
}

// Redis was emptied. Every command and page names the same next command, and that command works.
func TestCommandsOnAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	pages := &visitor{t, "http://" + control, d.key("operator")}
	g.grab("rain", "u8", "r1")
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	const advice = "run `hongbao recover`"
	for _, args := range [][]string{{"status"}, {"sink", "list"}, {"audit"}, {"doctor"}, {"dead", "list"},
		{"campaign", "show", "rain"}, {"campaign", "pause", "rain", "--by", "ann", "--why", "test"}, {"grab", "rain", "u9"}} {
		r := d.run(args...)
		require.NotZero(t, r.code, "%q", args)
		require.Contains(t, r.out+r.err, advice, "%q", args)
	}
	g.says(advice)
	for _, page := range []string{"/", "/sinks", "/campaigns/rain"} {
		require.Contains(t, html.UnescapeString(pages.sees(page)), advice, page)
	}
	r := d.run("recover")
	require.Equal(t, 3, r.code)
	require.Contains(t, r.out, "hongbao recover --accept-loss --shard 0")
}
