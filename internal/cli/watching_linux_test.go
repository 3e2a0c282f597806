package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a terminal the tables are replaced in place and have colours, and Ctrl-C ends the command with 0.
func TestWatchOnARealTerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{80, 120} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{})
			d.campaign("rain", 10, 1_000)
			campaign := d.onTerminal(t, columns, "campaign watch rain --interval 200ms")
			status := d.onTerminal(t, columns, "status --watch --interval 200ms", "NO_COLOR=1")
			campaign.says("rain +\x1b\\[32mopen\x1b\\[0m +Spring rain")
			d.ok("grab", "rain", "u1")
			campaign.says(`granted +1 of 10 +10%`)
			status.says(`(?m)^balance +0 +1 +1 +`)
			for _, c := range []*screen{campaign, status} {
				c.says("A\r\x1b\\[J") // it goes back to the first line
				c.press("\x03")
				require.Regexp(t, `20\S+ ended after \d+s: `, c.ends(0))
			}
			require.NotContains(t, status.Out.String(), "\x1b[3")
			require.Regexp(t, `\r\x1b\[Jbalance no worker, 1 waiting\r?\n`, status.Out.String())
			frames, _, _ := strings.Cut(campaign.Out.String(), "ended after")
			fits(t, columns, frames)
		})
	}
}
