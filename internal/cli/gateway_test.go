package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (g *grabber) send(method, path, body string, head map[string]string) (int, []byte) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	require.NoError(g.t, err)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range head {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(g.t, err)
	return res.StatusCode, text
}

// batch sends a batch of grabs, and requires that all are decided.
func (g *grabber) batch(key string, grabs []string) (out serve.BatchAnswer) {
	g.t.Helper()
	status, text := g.send("POST", "/v1/campaigns/rain/grabs:batch", `{"grabs":[`+strings.Join(grabs, ",")+`]}`,
		map[string]string{"Authorization": "Bearer " + key})
	require.Equal(g.t, http.StatusOK, status, "%s", text)
	require.NoError(g.t, json.Unmarshal(text, &out))
	require.Len(g.t, out.Results, len(grabs))
	return out
}

// grabFor grabs for a user, with the API key of a gateway.
func (g *grabber) grabFor(key, user string) {
	g.t.Helper()
	head := map[string]string{"Authorization": "Bearer " + key, "Hongbao-User": user, "Hongbao-Facts": "dev=s1"}
	status, text := g.send("POST", "/v1/campaigns/rain/grabs", `{"request_id":"r9"}`, head)
	require.Equal(g.t, http.StatusOK, status, "%s", text)
	require.Contains(g.t, string(text), `"granted"`)
	status, text = g.send("GET", "/v1/campaigns/rain/grabs/me", "", head)
	require.Equal(g.t, http.StatusOK, status, "%s", text)
	require.Contains(g.t, string(text), `"request_id":"r9"`)
	delete(head, "Hongbao-User")
	status, _ = g.send("POST", "/v1/campaigns/rain/grabs", `{"request_id":"r9"}`, head)
	require.Equal(g.t, http.StatusBadRequest, status, "for no user")
}

// A server without token keys serves gateways. A batch with an API key needs few calls to Redis, and a repeated batch
// gets the same answers. Facts count towards limits, and a revoked key is refused.
func TestGateways(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	d := setup(t, options{redis: server})
	d.campaign("rain", 200, 20_000, "durability: fast", "durability: fast\nlimits: [{by: device, per: day, max: 1}]")
	g := d.serve("--serve.keys=", "--serve.issuer=", "--serve.audience=", "--serve.facts=device=gateway:dev")
	key := strings.TrimSpace(d.ok("key", "create", "--role", "gateway"))
	g.batch(key, []string{`{"user":"first","request_id":"r1","facts":"dev=first"}`})

	var grabs []string
	for i := range 128 {
		grabs = append(grabs, fmt.Sprintf(`{"user":"u%d","request_id":"r1","facts":"dev=d%d"}`, i, i/2))
	}
	rdb := server.Client(t)
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	answers := g.batch(key, grabs)
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(stats)
	require.Len(t, m, 2)
	calls, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Less(t, calls, 64, "128 grabs share calls")
	outcomes := map[string]int{}
	for _, r := range answers.Results {
		require.NotNil(t, r.Answer)
		outcomes[r.Answer.Outcome]++
	}
	require.Equal(t, map[string]int{"granted": 64, "limit_reached": 64}, outcomes, "two users have one device")
	again := g.batch(key, grabs)
	for i, r := range answers.Results {
		require.Equal(t, r.Answer.Outcome, again.Results[i].Answer.Outcome, i)
		require.Equal(t, r.Answer.Receipts, again.Results[i].Answer.Receipts, i)
	}

	g.grabFor(key, "signer")
	status, text := g.send("GET", "/v1/campaigns/rain/grabs?user=signer", "", map[string]string{"Authorization": "Bearer " + key})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(text), `"request_id":"r9"`)
	status, _ = g.call("POST", "/v1/campaigns/rain/grabs", "k1", "u1", "{}")
	require.Equal(t, http.StatusUnauthorized, status, "there are no tokens here")

	id, _, _ := strings.Cut(strings.TrimPrefix(key, "hb_"), "_")
	d.ok("key", "revoke", id)
	testkit.Eventually(t, 30*time.Second, func() bool {
		status, _ := g.send("GET", "/v1/campaigns/rain/grabs?user=u1", "", map[string]string{"Authorization": "Bearer " + key})
		return status == http.StatusUnauthorized
	}, "the key is dead")
}
