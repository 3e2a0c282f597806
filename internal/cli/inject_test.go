package cli

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever text an attacker writes into the stream, it can't add a line to the log or to a list (B52).
func TestLogInjection(t *testing.T) {
	t.Parallel()
	const forged = "\n{\"message\":\"forged\"}\x1b[31m"
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	w := d.start("work")
	w.says(`"working"`)
	honest := grantEntry("rain", 1, "1", "u")
	d.plant("rain", forged, honest[1])
	d.plant("rain", "1"+forged, honest[1])
	d.plant("rain", "1", forged)
	for _, word := range strings.Fields(honest[1]) {
		if word != "SEQ" {
			d.plant("rain", "1", strings.Replace(honest[1], word, forged, 1))
		}
	}
	d.plant("rain", grantEntry("rain", 1, "1", forged)...)
	d.quiet()
	r := w.stop(syscall.SIGTERM)
	require.Contains(t, r.err, `forged`, "the log reports it")
	for line := range strings.Lines(r.err) {
		var l struct{ Message string }
		require.NoError(t, json.Unmarshal([]byte(line), &l), "%q is not a line of the log", line)
		require.NotEqual(t, "forged", l.Message)
	}
	letters := decided[listed](t, d.ok("dead", "list", "--json", "--limit", "100")).Letters
	require.NotEmpty(t, letters)
	text := d.ok("dead", "list", "--limit", "100")
	require.Equal(t, len(letters)+1, strings.Count(text, "\n"), "one line for each letter, and the header:\n%s", text)
	require.NotContains(t, text, "\x1b")
}
