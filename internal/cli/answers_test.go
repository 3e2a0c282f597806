package cli

import (
	"fmt"
	"net/http"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Three servers answer grabs. One of them is killed and another one ends in good order. Whoever asks a server that
// answered nothing gets the answers of all three: by the API, by `campaign show` and `campaign watch`, and in the
// console.
func TestAnswersOfAllServers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	at, base, key := d.server("viewer")
	counts := func(out string) string {
		var text string
		if a := decided[struct{ Answers *model.Answers }](t, out).Answers; a != nil {
			for _, c := range a.Counts {
				text += fmt.Sprintf("%s %d, ", c.Name, c.N)
			}
		}
		return text
	}
	shows := func(want string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() bool { return counts(at.run("campaign", "show", "rain", "--json").out) == want },
			"the answers are %q", want)
	}
	first, second, third := d.serve(), d.serve(), d.serve("--serve.rate=1", "--serve.burst=2")
	for i, g := range []*grabber{first, second, third} {
		require.Equal(t, "granted", g.grab("rain", fmt.Sprint("u", i), "r1").Outcome)
		require.Equal(t, "already_granted", g.grab("rain", fmt.Sprint("u", i), "r2").Outcome)
	}
	status, _ := third.call("POST", "/v1/campaigns/rain/grabs", "k1", "u2", `{"request_id":"r3"}`)
	require.Equal(t, http.StatusTooManyRequests, status)
	shows("granted 3, already_granted 3, rate_limited 1, ")
	first.Signal(syscall.SIGKILL)
	second.grab("rain", "u1", "r4")
	second.Signal(syscall.SIGTERM)
	require.Zero(t, second.wait(30*time.Second).code)
	shows("granted 3, already_granted 4, rate_limited 1, ")

	want := "answered +8 requests to all servers: 3 granted, 4 already granted, 1 rate limited\n"
	require.Regexp(t, want, d.ok("campaign", "show", "rain"))
	require.Regexp(t, want, at.requireSame(d, "campaign", "show", "rain").out)
	(&visitor{t, base, key}).sees("/campaigns/rain", "8 requests (not people), all servers", "already_granted</small></span><span class=\"n\">4</span>")
	watched := start(t, at.env, "campaign", "watch", "rain", "--interval", "200ms")
	line := regexp.MustCompile(`rain open: 3 of 10 granted.*; 8 requests answered`)
	testkit.Eventually(t, 30*time.Second, func() bool { return line.MatchString(watched.Out.String()) }, "campaign watch shows the answers")
	watched.Signal(syscall.SIGINT)
	require.Zero(t, watched.wait(30*time.Second).code)
}
