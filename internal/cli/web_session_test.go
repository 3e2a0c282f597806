//go:build web

package cli

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Nobody touches three pages. The one of a rain stays live for longer than console.idle_time. The one without a rain becomes
// grey then, and so does a rain at console.session_time after its login.
func TestConsoleRainKeepsItsSession(t *testing.T) {
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	d.ok("campaign", "load", "rain")
	idle, short := testkit.FreeAddr(t), testkit.FreeAddr(t)
	d.serve("--control.listen="+idle, "--console.idle_time=1m")
	d.serve("--control.listen="+short, "--console.session_time=1m")
	begun := time.Now()
	opens := func(address, path string) *browser {
		b := newBrowser(t, "http://"+address)
		b.logIn(d.key("viewer"))
		b.open(path)
		b.seesOnly("#status", "Live")
		return b
	}
	rain, other, limited := opens(idle, "/campaigns/rain/rain"), opens(idle, "/sinks"), opens(short, "/campaigns/rain")
	ended := func(b *browser) bool {
		return get(b, chromedp.Evaluate[bool](`document.getElementById("old")?.textContent.startsWith("Your session is over") ?? false`))
	}
	require.Eventually(t, func() bool { return ended(other) && ended(limited) }, 3*time.Minute, time.Second)
	require.Greater(t, time.Since(begun), 50*time.Second, "not before its time")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		require.False(t, ended(rain))
		rain.seesOnly("#status", "Live")
	}
	rain.check("")
}
