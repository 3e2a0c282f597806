package cli

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// control starts `hongbao control`, and returns the URLs of its two listeners.
func (d *deployment) control(knobs ...string) (p *program, base, ops string) {
	d.t.Helper()
	at, opsAt := testkit.FreeAddr(d.t), testkit.FreeAddr(d.t)
	p = d.start(append([]string{"control", "--control.listen=" + at, "--control.ops_listen=" + opsAt}, knobs...)...)
	p.says("serving the administration")
	return p, "http://" + at, "http://" + opsAt
}

// withKey sends a GET request with an API key, and returns the status.
func withKey(t *testing.T, url, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

// While no `hongbao serve` runs, `hongbao control` serves the administration API and the console, runs commands for
// --server, and exports metrics.
func TestControlAlone(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	p, base, ops := d.control()
	key := d.key("treasurer")
	at := atServer{t, []string{"HONGBAO_SERVER=" + base, "HONGBAO_KEY_FILE=" + keyFile(t, key, 0o600)}}
	require.Zero(t, at.run("campaign", "pause", "rain", "--why", "test").code)
	require.Equal(t, store.StatePaused, d.rdb.HGet(t.Context(), d.store.Home("rain").Keys.Campaign("rain"), "state").Val())
	require.Equal(t, http.StatusOK, withKey(t, base+"/v1/campaigns/rain", key))
	status, text := ask(t, base+"/login")
	require.Equal(t, http.StatusOK, status, text)
	text = scrape(t, ops, d.id())
	for _, line := range []string{`hongbao_http_requests_total{listener="control",route="/login",status="200"} 1`, `hongbao_state_up 1`} {
		require.Contains(t, text, line+"\n")
	}
	require.Regexp(t, `hongbao_build_info\{command="control",version="[^"]+"\} 1`, text)
	require.Contains(t, d.ok("health", "control", "--control.ops_listen="+strings.TrimPrefix(ops, "http://")), "control: ok")
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
}

// `hongbao serve` alone has no control listener, does not ask for the deployment's state, and needs no ledger.
func TestServeAloneHasNoControl(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	at := testkit.FreeAddr(t)
	g := d.serveUsers("--control.listen=" + at)
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	_, err := net.Dial("tcp", at)
	require.ErrorContains(t, err, "refused")
	text := scrape(t, g.ops("serving grabs", "ops"), d.id())
	require.Contains(t, text, `hongbao_campaign_left_packets{campaign="rain"} 8`)
	require.NotContains(t, text, "hongbao_state_up")
	g.Signal(syscall.SIGTERM)
	require.Zero(t, g.wait(30*time.Second).code)
	require.NotContains(t, g.Err.String(), "serving the administration")
	require.Equal(t, "already_granted", d.serveUsers("--ledger.dsn=").grab("rain", "u1", "r2").Outcome)
	for _, command := range [][]string{{"control", "--ledger.dsn="}, {"serve", "--control", "--ledger.dsn="}} {
		d.refused(2, command, "ledger.dsn is empty: the administration needs the ledger")
	}
}

// `hongbao control` is killed and started while a worker restores a shard. It is no witness of what users know, although
// it shows their grants: so no restore waits for it.
func TestControlDelaysNoRestore(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	g := d.serveUsers()
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	k := d.store.Home("rain")
	key := d.key("operator")
	// witnessed requires that only serve is registered, after control has shown a grant.
	witnessed := func(control string) {
		t.Helper()
		require.Equal(t, http.StatusOK, withKey(t, control+"/v1/campaigns/rain/trail?user=u1", key))
		registered, err := k.Witnesses(t.Context())
		require.NoError(t, err)
		require.Len(t, registered, 1)
	}
	p, control, _ := d.control()
	witnessed(control)
	g.Signal(syscall.SIGSTOP) // the restore waits for this witness
	require.NoError(t, d.rdb.HSet(t.Context(), k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
	d.start("work")
	testkit.Eventually(t, 60*time.Second, func() bool {
		a, err := k.Attempt(t.Context())
		return err == nil && a.Epoch > 0
	}, "a worker restores the shard")
	p.Kill()
	p, control, _ = d.control()
	witnessed(control)
	g.Signal(syscall.SIGCONT)
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, _ := g.call("POST", "/v1/campaigns/rain/grabs", "k1", "u1", `{"request_id":"r2"}`)
		return status == http.StatusOK
	}, "the shard is open again")
	witnessed(control)
	require.Equal(t, "already_granted", g.grab("rain", "u1", "r2").Outcome)
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
}

// A flag that has moved to section control is refused with what to do.
func TestMovedFlag(t *testing.T) {
	t.Parallel()
	r := runProgram(t, nil, "serve", "--serve.control_listen=127.0.0.1:1")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "unknown flag: --serve.control_listen: it is control.listen now: rename it, and run `hongbao control`")
}
