//go:build web

package cli

import (
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
)

// A person causes faults in a `hongbao dev` in Chromium. The page shows the faults and the waiting grants without a
// reload.
func TestConsoleFaults(t *testing.T) {
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "100")
	b := newBrowser(t, d.Console)
	b.logIn(d.Key)
	b.press(`nav a[href="/faults"]`)
	b.sees("#status", "Live")
	b.sees("main", "No fault was caused yet.")
	b.press("#f-" + faults.CutKafka)
	b.sees("#story", "Kafka is cut off")
	b.press("#f-" + faults.KillWorker)
	b.sees("#story", "is killed with SIGKILL")
	b.do(chromedp.WaitVisible("#f-" + faults.RestoreKafka))
	b.press("#f-" + faults.RestoreKafka)
	b.sees("#story", "Kafka is back after")
	b.press("#f-" + faults.CutRedis)
	b.do(chromedp.WaitVisible("#f-" + faults.RestoreRedis))
	b.press("#f-" + faults.RestoreRedis)
	b.sees("#story", "Redis is back after")
	b.press("#f-" + faults.LoseAnswers)
	b.sees("#story", "of Kafka are lost")
	b.check("faults")
	b.press(`form[action="/logout"] button`)
	require.Contains(t, b.path(), "/login")
	d.end(syscall.SIGTERM)
}
