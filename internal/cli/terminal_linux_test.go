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

// screen is a command on a pseudo terminal of script(1).
type screen struct {
	*program
	t     *testing.T
	typed *os.File
}

// onTerminal starts a command of the program on a terminal with that many columns, and 24 rows.
func (d *deployment) onTerminal(t *testing.T, columns int, line string, env ...string) *screen {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	keys, typed, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = keys.Close(), typed.Close() })
	cmd := exec.Command("script", "-qec", fmt.Sprintf("stty cols %d rows 24; exec %s %s", columns, self, line), "/dev/null")
	cmd.Stdin = keys
	return &screen{launch(t, t.TempDir(), append(append([]string{"TERM=xterm"}, d.env...), env...), cmd), t, typed}
}

// says waits until the terminal shows the pattern.
func (c *screen) says(pattern string) {
	c.t.Helper()
	testkit.Eventually(c.t, 30*time.Second, func() bool { return regexp.MustCompile(pattern).MatchString(c.Out.String()) },
		"it says %q", pattern)
}

// press types characters.
func (c *screen) press(characters string) {
	c.t.Helper()
	_, err := fmt.Fprint(c.typed, characters)
	require.NoError(c.t, err)
}

// ends waits for the end of the command, and returns what the terminal got, without the returns at the ends of lines.
func (c *screen) ends(code int) string {
	c.t.Helper()
	r := c.wait(time.Minute)
	require.Equal(c.t, code, r.code, r.out)
	return strings.ReplaceAll(r.out, "\r\n", "\n")
}

// fits checks that no line is wider than the terminal.
func fits(t *testing.T, columns int, text string) {
	t.Helper()
	for line := range strings.Lines(regexp.MustCompile("\x1b\\[[0-9]*[mAJK]").ReplaceAllString(text, "")) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "\r") {
			require.LessOrEqual(t, places(part), columns, part)
		}
	}
}
