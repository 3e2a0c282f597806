package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that waits shows in one line of the terminal how far it is. Ctrl-C erases the line, and says how to go on.
func TestProgressOnARealTerminal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.ok("grab", "rain", "u1")
	d.ok("campaign", "close", "rain", "--early")
	left := int64(d.show("rain").Redis.LeftAmount)
	for _, columns := range []int{80, 120} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			t.Parallel()
			c := d.onTerminal(t, columns, fmt.Sprintf("campaign refund rain --wait 60s --amount %d", left))
			c.says("refund rain: waiting until the ledger has every grant: 0 of 2 \\(0 %\\)\x1b\\[K\r")
			c.press("\x03")
			text := c.ends(130)
			require.Regexp(t, "\x1b\\[Khongbao: campaign refund: ended by a signal: interrupt; a campaign is refunded once: run the "+
				"same command again, also if the money has moved\n$", text)
		})
	}
	text := d.onTerminal(t, 80, "recover").ends(0)
	require.Contains(t, text, "recover: asking what Redis, the ledger, the topic and other processes know\x1b[K\r")
	require.Contains(t, text, "\x1b[Kshard 0 is open\n")
}
