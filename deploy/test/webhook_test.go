package test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A webhook sink posts to examples/clients/webhook.py. Each grant has its effect once, although every event comes twice,
// and also at a second receiver with the same database.
func TestWebhookInPython(t *testing.T) {
	t.Parallel()
	const secret, stranger = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	file := filepath.Join(t.TempDir(), "points.db")
	list := make([]hongbao.Grant, 20)
	for i := range list {
		n := int64(i + 1)
		list[i] = hongbao.Grant{Seq: n, Epoch: 1, Campaign: "rain", Packet: n, Amount: hongbao.Amount(n), User: "u1",
			Time: time.UnixMilli(1), Currency: "CNY"}
	}
	for _, fresh := range [][]hongbao.Grant{list[:10], list[10:]} {
		url, printed := receiver(t, secret, file)
		post := func(secret string, grants []hongbao.Grant) []error {
			h, err := webhook.New(webhook.Config{URL: url, Secret: secret, Deployment: "prod", ConnectTimeout: time.Second,
				Timeout: 30 * time.Second, Concurrency: 8, MaxRetryAfter: time.Second, BreakerFailures: 100,
				BreakerOpen: time.Second, AllowPrivate: true})
			require.NoError(t, err)
			t.Cleanup(h.Close)
			return h.Handle(t.Context(), testkit.Batch(grants))
		}
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(post(stranger, list[:1])[0]))
		for range 2 {
			require.Nil(t, post(secret, list[:10]))
			require.Nil(t, post(secret, fresh))
		}
		other := []hongbao.Grant{fresh[0]}
		other[0].User = "u2"
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(post(secret, other)[0]), "the packet has another user")
		seen := map[int64]bool{}
		for range fresh {
			var grant struct{ Packet int64 }
			require.NoError(t, json.Unmarshal([]byte(printed()), &grant))
			seen[grant.Packet] = true
		}
		require.Len(t, seen, len(fresh))
		require.True(t, seen[fresh[0].Packet])
	}
}

// receiver runs webhook.py until the test ends. It returns its URL, and a function that returns its next line.
func receiver(t *testing.T, secret, file string) (url string, line func() string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cached(t, "clients", "venv", "bin", "python3"), "webhook.py", "0", file)
	cmd.Dir = "../../examples/clients"
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // t.Context ends first, which kills the program
	lines := bufio.NewScanner(out)
	line = func() string {
		t.Helper()
		require.True(t, lines.Scan(), "webhook.py has ended")
		return lines.Text()
	}
	return line(), line
}
