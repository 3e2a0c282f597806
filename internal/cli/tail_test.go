package cli

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// `hongbao tail` prints the grants since a time, or the last grants, and reads nothing but the topic.
func TestTailFromATimeAndFromTheEnd(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	d.campaign("drizzle", 90, 9000)
	w := d.start("work")
	w.says(`"working"`)
	require.Equal(t, 10, d.crowdOf("rain", 0, 10))
	d.quiet()
	between := time.Now().UTC().Format(time.RFC3339Nano)
	require.Equal(t, 90, d.crowdOf("drizzle", 0, 90))
	d.quiet()
	w.stop(syscall.SIGTERM)
	tail := func(args ...string) map[string]deliveries.Tailed {
		t.Helper()
		return parse(t, d.ok(append([]string{"tail", "--redis.addrs=127.0.0.1:1"}, args...)...))
	}
	require.Len(t, tail("--since", "1h"), 100)
	require.Empty(t, tail("--since", time.Now().Add(time.Hour).Format(time.RFC3339)))
	late := tail("--since", between)
	require.Len(t, late, 90)
	times := func(all map[string]deliveries.Tailed) []time.Time {
		list := slices.Collect(maps.Values(all))
		slices.SortFunc(list, func(a, b deliveries.Tailed) int { return a.Time.Compare(b.Time) })
		out := make([]time.Time, len(list))
		for i, l := range list {
			out[i] = l.Time
		}
		return out
	}
	require.Equal(t, times(late)[83:], times(tail("-n", "7")), "the last ones")
	require.Equal(t, times(late), times(tail("-n", "1000", "--since", between)), "no more than there are")
	for event, l := range tail("-n", "5", "--campaign", "rain") {
		require.Equal(t, "rain", l.Campaign, event)
	}
	require.Len(t, tail("-n", "5", "--campaign", "rain"), 5, "behind 90 of another campaign")
	require.Empty(t, tail("-n", "0"))

	for _, args := range [][]string{{"--since", "yesterday"}, {"--since", "-5m"}, {"-n", "-2"}, {"-n", "100001"}} {
		require.Equal(t, 2, d.run(append([]string{"tail"}, args...)...).code, args)
	}
}

// With --follow and -n, `hongbao tail` begins near the end of the topic and continues with new grants.
func TestTailFollowsFromTheEnd(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 20, 2000)
	w := d.start("work")
	w.says(`"working"`)
	require.Equal(t, 10, d.crowdOf("rain", 0, 10))
	d.quiet()
	follow := d.start("tail", "-n", "1", "-f")
	testkit.Eventually(t, 20*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") == 1 },
		"the last one")
	require.Equal(t, 10, d.crowdOf("rain", 10, 10))
	testkit.Eventually(t, 20*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") >= 11 },
		"what comes")
	follow.Signal(syscall.SIGINT)
	r := follow.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
	require.Len(t, parse(t, r.out), 11)
	w.stop(syscall.SIGTERM)
}
