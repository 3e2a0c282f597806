package cli

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// On a terminal the tables are replaced in place and have colours, and Ctrl-C ends the command with 0. The terminal is
// a pseudo terminal of script(1).
func TestWatchOnARealTerminal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	self, err := os.Executable()
	require.NoError(t, err)
	begin := func(env []string, line string) (*program, *os.File) {
		t.Helper()
		keys, typed, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = keys.Close(), typed.Close() })
		cmd := exec.Command("script", "-qec", "stty cols 80 rows 24; exec "+self+" "+line, "/dev/null")
		cmd.Stdin = keys
		return launch(t, t.TempDir(), append(append([]string{"TERM=xterm"}, d.env...), env...), cmd), typed
	}
	says := func(p *program, pattern string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() bool { return regexp.MustCompile(pattern).MatchString(p.Out.String()) },
			"it says %q", pattern)
	}
	campaign, keys := begin(nil, "campaign watch rain --interval 200ms")
	status, more := begin([]string{"NO_COLOR=1"}, "status --watch --interval 200ms")
	says(campaign, "rain +\x1b\\[32mopen\x1b\\[0m +Spring rain")
	d.ok("grab", "rain", "u1")
	says(campaign, `granted +1 of 10 +10%`)
	says(status, `(?m)^balance +0 +1 +1 +`)
	for p, typed := range map[*program]*os.File{campaign: keys, status: more} {
		says(p, "A\r\x1b\\[J") // it goes back to the first line
		_, err := fmt.Fprint(typed, "\x03")
		require.NoError(t, err)
		r := p.wait(30 * time.Second)
		require.Zero(t, r.code, r.out)
		require.Regexp(t, `20\S+ ended after \d+s: `, r.out)
	}
	require.NotContains(t, status.Out.String(), "\x1b[3")
	frames, _, _ := strings.Cut(regexp.MustCompile("\x1b\\[[0-9]*[mAJ]").ReplaceAllString(campaign.Out.String(), ""), "ended after")
	for line := range strings.Lines(frames) {
		require.LessOrEqual(t, places(strings.TrimSpace(line)), 80, line)
	}
}
