package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// keySet returns a JSON Web Key set with one HS256 key, whose id is kid.
func keySet(kid string) string {
	return fmt.Sprintf(`{"keys":[{"kty":"oct","kid":%q,"alg":"HS256","k":%q}]}`, kid,
		base64.RawURLEncoding.EncodeToString(signing(kid)))
}

func signing(kid string) []byte {
	return []byte("a secret of the tests' own: " + kid + strings.Repeat(".", 32))
}

// grabber is a running `hongbao serve`, with methods that send grabs to it.
type grabber struct {
	*program
	t         *testing.T
	url, keys string
}

// serve starts a process with both servers.
func (d *deployment) serve(knobs ...string) *grabber {
	d.t.Helper()
	return d.serveUsers(append([]string{"--control", "--control.listen=127.0.0.1:0"}, knobs...)...)
}

// serveUsers starts a server without the administration.
func (d *deployment) serveUsers(knobs ...string) *grabber {
	d.t.Helper()
	at, ops, keys := testkit.FreeAddr(d.t), testkit.FreeAddr(d.t), filepath.Join(d.t.TempDir(), "keys.json")
	require.NoError(d.t, os.WriteFile(keys, []byte(keySet("k1")), 0o600))
	args := append([]string{"serve", "--serve.listen=" + at, "--serve.ops_listen=" + ops,
		"--serve.keys=" + keys,
		"--serve.issuer=https://id.test", "--serve.audience=hongbao", "--serve.facts=device=claim:dev",
		"--serve.drain_delay=0s", "--serve.rate=1000000", "--serve.burst=1000000"}, knobs...)
	env := slices.Concat(d.env[:d.times], unhurried, d.env[d.times:])
	g := &grabber{start(d.t, env, args...), d.t, "http://" + at, keys}
	g.says("serving grabs")
	return g
}

// request returns a user's request, with a token that the key kid has signed.
func (g *grabber) request(method, path, kid, user, body string) *http.Request {
	g.t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "https://id.test", "aud": "hongbao", "sub": user, "exp": time.Now().Add(time.Hour).Unix(), "dev": "d-" + user,
	})
	token.Header["kid"] = kid
	text, err := token.SignedString(signing(kid))
	require.NoError(g.t, err)
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	require.NoError(g.t, err)
	req.Header.Set("Authorization", "Bearer "+text)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// call sends a request of a user.
func (g *grabber) call(method, path, kid, user, body string) (int, []byte) {
	g.t.Helper()
	res, err := http.DefaultClient.Do(g.request(method, path, kid, user, body))
	require.NoError(g.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	require.NoError(g.t, err)
	return res.StatusCode, data
}

// grab sends a grab, and requires that it is decided.
func (g *grabber) grab(campaign, user, request string) serve.GrabAnswer {
	g.t.Helper()
	status, text := g.call("POST", "/v1/campaigns/"+campaign+"/grabs", "k1", user, `{"request_id":"`+request+`"}`)
	require.Equal(g.t, http.StatusOK, status, "%s", text)
	var a serve.GrabAnswer
	require.NoError(g.t, json.Unmarshal(text, &a))
	return a
}

// A crowd grabs over HTTP. Each packet is granted once, and a repeated request gets the same receipt, even if the
// server was killed in between. Redis and the ledger have exactly the grants that were answered.
func TestServe(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 50, 5_000, "durability: fast", "durability: fast\nlimits: [{by: device, per: day, max: 1}]")
	g := d.serve()
	status, text := g.call("GET", "/v1/campaigns/rain", "k1", "u0", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(text), `"status":"open"`)
	var mu sync.Mutex
	answers, sum := map[string]serve.GrabAnswer{}, int64(0)
	var crowd sync.WaitGroup
	for i := range 80 {
		crowd.Go(func() {
			user := fmt.Sprint("u", i)
			a := g.grab("rain", user, "r1")
			mu.Lock()
			defer mu.Unlock()
			answers[user] = a
			if a.Outcome == "granted" {
				sum += a.Receipts[0].Amount
			}
		})
	}
	crowd.Wait()
	require.EqualValues(t, 5_000, sum, "every packet was granted, none twice")
	g.Kill()
	g = d.serve()
	winner := ""
	for user, a := range answers {
		again := g.grab("rain", user, "r1")
		require.Equal(t, a.Outcome, again.Outcome, user)
		require.Equal(t, a.Receipts, again.Receipts, user)
		if a.Outcome == "granted" {
			winner = user
			require.Equal(t, "CNY", again.Currency)
		} else {
			require.Equal(t, "sold_out", a.Outcome)
		}
	}
	status, text = g.call("GET", "/v1/campaigns/rain/grabs/me", "k1", winner, "")
	require.Equal(t, http.StatusOK, status)
	var mine serve.Receipts
	require.NoError(t, json.Unmarshal(text, &mine))
	require.Equal(t, answers[winner].Receipts, mine.Receipts)
	require.Equal(t, []string{"rain", winner, "CNY"}, []string{mine.Campaign, mine.User, mine.Currency})
	require.Contains(t, d.ok("receipts", "rain", winner), fmt.Sprintf("event %s,", mine.Receipts[0].Event))

	worker := d.start("work")
	worker.says(`"working"`)
	d.ok("campaign", "close", "rain", "--early")
	d.ok("campaign", "refund", "rain", "--amount", "0", "--wait", "30s")
	worker.Kill()
	d.start("work", "--campaign.grace=0s") // removes the campaign from Redis at its start
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, _ := g.call("GET", "/v1/campaigns/rain", "k1", winner, "")
		return status == http.StatusNotFound
	}, "the campaign leaves Redis")
	status, later := g.call("GET", "/v1/campaigns/rain/grabs/me", "k1", winner, "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, string(text), string(later), "the ledger answers")
	g.Signal(syscall.SIGTERM)
	r := g.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
}

// A server that has decided no grab returns a receipt. It reports the receipt to a recoverer that restores the shard.
func TestServeRemembersWhatItOnlyRead(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	k := d.store.Home("rain")
	storetest.Grab(t, k.Shard, "rain", "u1/r1")
	status, text := d.serve().call("GET", "/v1/campaigns/rain/grabs/me", "k1", "u1", "")
	require.Equal(t, http.StatusOK, status, "%s", text)
	require.NoError(t, d.rdb.HSet(t.Context(), k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
	require.NoError(t, k.Begin(t.Context(), &store.Frozen{Seq: 1, Epoch: 1}, store.Attempt{Epoch: 2, Token: "t", History: "h"}))
	testkit.Eventually(t, 20*time.Second, func() bool {
		e, err := k.Evidence(t.Context())
		return err == nil && len(e.Grants) == 1 && e.Grants[0].User == "u1"
	}, "the server testifies")
}

// If a user may have several packets, each grab needs a request id. A changed file of keys is read again. While Redis
// is down the answer is 503, and a retry is granted when Redis is back.
func TestServeFaults(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	d := setup(t, options{redis: server})
	d.campaign("many", 9, 900, "durability: fast",
		"durability: fast\nlimits: [{by: user, per: campaign, max: 3}, {by: ip, per: day, max: 9}]")
	d.campaign("rain", 9, 900)
	g := d.serve()
	status, text := g.call("POST", "/v1/campaigns/many/grabs", "k1", "u1", "{}")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(text), `"request_id_required"`)
	status, text = g.call("POST", "/v1/campaigns/many/grabs", "k1", "u1", `{"request_id":"r1"}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, string(text), `"fact_missing"`)
	status, text = g.call("POST", "/v1/campaigns/none/grabs", "k1", "u1", "{}")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, string(text), `"unknown_campaign"`)
	status, _ = g.call("GET", "/v1/campaigns/none/grabs/me", "k1", "u1", "")
	require.Equal(t, http.StatusNotFound, status)

	ask := func(kid string) int {
		status, _ := g.call("GET", "/v1/campaigns/rain/grabs/me", kid, "u1", "")
		return status
	}
	require.Equal(t, http.StatusUnauthorized, ask("k2"))
	require.NoError(t, os.WriteFile(g.keys, []byte(keySet("k2")), 0o600))
	testkit.Eventually(t, 20*time.Second, func() bool { return ask("k2") == http.StatusOK }, "the new key is good")
	require.Equal(t, http.StatusUnauthorized, ask("k1"))

	grab := func() (int, []byte) {
		return g.call("POST", "/v1/campaigns/rain/grabs", "k2", "u1", `{"request_id":"r1"}`)
	}
	require.NoError(t, server.Kill())
	status, text = grab()
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", text)
	require.NoError(t, server.Restart())
	worker := d.start("work") // opens the shard after it has checked for a loss
	worker.says(`"working"`)
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, text = grab()
		return status == http.StatusOK
	}, "Redis is back")
	require.Contains(t, string(text), `"granted"`)
	bad := d.run("serve", "--serve.keys="+g.keys, "--serve.issuer=x")
	require.Equal(t, 2, bad.code)
	require.Contains(t, bad.err, "serve.audience is empty")
	require.NoError(t, os.Chmod(g.keys, 0o644))
	open := d.run("serve", "--serve.keys="+g.keys, "--serve.issuer=x", "--serve.audience=x", "--serve.listen=127.0.0.1:0",
		"--serve.ops_listen=127.0.0.1:0")
	require.NotZero(t, open.code)
	require.Contains(t, open.err, "it is a secret, but "+g.keys+" is open to others")
}
