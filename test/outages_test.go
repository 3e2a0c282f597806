package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// everyOutage runs all rows of TestOutages; make outages sets it.
var everyOutage = flag.Bool("outages", false, "run each row of TestOutages, and not only the quick one")

// redisOutage is a row in a table of docs/reliability.md: a way in which Redis fails while users grab over HTTP.
type redisOutage struct {
	name  string
	begin func(o *outageSite)
	end   func(o *outageSite)
	quick bool // part of make test
}

func outages() []redisOutage {
	return []redisOutage{
		{name: "dead: the process is killed, and started again",
			begin: func(o *outageSite) { require.NoError(o.t, o.redis.Kill()) },
			end:   func(o *outageSite) { require.NoError(o.t, o.redis.Restart()) }},
		{name: "silent: the process is stopped by SIGSTOP", quick: true,
			begin: func(o *outageSite) { require.NoError(o.t, o.redis.Stop()) },
			end:   func(o *outageSite) { require.NoError(o.t, o.redis.Cont()) }},
		{name: "full: it has reached maxmemory", begin: func(o *outageSite) { o.limit("1mb") },
			end: func(o *outageSite) { o.limit("0") }},
		{name: "slow: each reply comes 400 ms late", begin: func(o *outageSite) { o.proxy.Delay(400 * time.Millisecond) },
			end: func(o *outageSite) { o.proxy.Delay(0) }},
		{name: "replies lost: scripts run, and a proxy drops each reply",
			begin: func(o *outageSite) { o.proxy.SwallowAnswers(1<<30, isGrabScript) },
			end:   func(o *outageSite) { o.proxy.SwallowAnswers(0, nil) }},
	}
}

// isGrabScript reports whether a request calls a script of a shard, but not the witness' own script.
func isGrabScript(request []byte) bool {
	return bytes.Contains(bytes.ToLower(request), []byte("evalsha")) && !bytes.Contains(request, []byte(":witnesses"))
}

// outageRates are the grabs a second of the rows.
var outageRates = []int{300, 3000}

// outageTime is how long Redis fails.
const outageTime = 12 * time.Second

// outageBound is the longest time of an answer that the page promises: the sum of three knobs, and a margin for a busy
// machine.
func outageBound() time.Duration {
	cfg := producer.DefaultConfig()
	margin := time.Second
	if !*everyOutage { // beside other tests
		margin = 5 * time.Second
	}
	return cfg.QueueTimeout + cfg.CallTimeout + cfg.UndecidedTimeout + margin
}

// outageSite is a deployment with `hongbao serve`, whose Redis fails.
type outageSite struct {
	*site

	redis  *testkit.RedisServer
	proxy  *proxy.Proxy // between serve and Redis
	url    string
	client *http.Client

	mu      sync.Mutex
	grabs   []*outageGrab
	waiting sync.WaitGroup
}

// outageGrab is a user's grab, with the first answer.
type outageGrab struct {
	user   string
	began  time.Time
	took   time.Duration
	code   string // outcome, or code of the problem
	packet int64
}

// Grabs end within their bound while Redis fails, and what their answers say is true: a grab that "did nothing" has no
// grant, and a repeat with the same request id gets the receipt of each grant. `make outages` runs all rows and writes
// the table of docs/reliability.md.
func TestOutages(t *testing.T) {
	if !*everyOutage {
		t.Parallel()
	}
	for i, row := range outages() {
		for _, rate := range outageRates {
			if *everyOutage || row.quick && rate == outageRates[0] {
				t.Run(fmt.Sprintf("%02d %d %s", i+1, rate, row.name), func(t *testing.T) { row.run(t, rate) })
			}
		}
	}
}

func (row *redisOutage) run(t *testing.T, rate int) {
	at := redisByHand(t, 0, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	o := &outageSite{site: newSite(t, at, "HONGBAO_DEPLOYMENT_SHARDS=1", "HONGBAO_REDIS_READ_TIMEOUT=3s",
		"HONGBAO_REDIS_DIAL_TIMEOUT=2s", "HONGBAO_CONSUMER_LEASE=30s"), redis: at.primaries[0]}
	o.proxy = testkit.NewProxy(t, o.redis.Addr)
	o.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}, Timeout: time.Minute}
	t.Cleanup(o.client.CloseIdleConnections)
	o.ok("init")
	o.create("rain", 100_000, fast, oneEach)
	o.work()
	o.serves()
	o.pour(rate, 2*time.Second)
	row.begin(o)
	failed := time.Now()
	o.pour(rate, outageTime)
	healed := time.Now()
	row.end(o)
	o.waiting.Wait()
	o.opens()
	line := o.judge(row, rate, failed, healed)
	t.Log(line)
	if *everyOutage && *update {
		writeOutage(t, row, rate, line)
	}
}

// serves starts `hongbao serve` behind the proxy.
func (o *outageSite) serves() {
	o.t.Helper()
	o.url = "http://" + testkit.FreeAddr(o.t)
	keys := writeFile(o.t, "keys.json", fmt.Sprintf(`{"keys":[{"kty":"oct","kid":"k1","alg":"HS256","k":%q}]}`,
		base64.RawURLEncoding.EncodeToString([]byte(tokenSecret))))
	cmd := exec.Command(o.path, "serve", "--redis.addrs="+o.proxy.Addr, "--serve.listen="+strings.TrimPrefix(o.url, "http://"),
		"--serve.ops_listen="+testkit.FreeAddr(o.t), "--serve.keys="+keys,
		"--serve.issuer=https://id.test", "--serve.audience=hongbao", "--serve.drain_delay=0s")
	cmd.Env = o.env
	testkit.StartProgram(o.t, cmd).Says(startTime, "serving grabs")
}

func (o *outageSite) limit(memory string) {
	o.t.Helper()
	require.NoError(o.t, o.rdb.ConfigSet(o.t.Context(), "maxmemory", memory).Err())
}

// pour sends grabs of new users for a time, without waiting for answers.
func (o *outageSite) pour(rate int, d time.Duration) {
	turn := time.NewTicker(10 * time.Millisecond)
	defer turn.Stop()
	for i, n := 0, int(d/(10*time.Millisecond)); i < n; i++ {
		<-turn.C
		for range rate / 100 {
			o.mu.Lock()
			g := &outageGrab{user: user(len(o.grabs))}
			o.grabs = append(o.grabs, g)
			o.mu.Unlock()
			o.waiting.Go(func() {
				g.began = time.Now()
				g.code, g.packet = o.grab(g.user)
				g.took = time.Since(g.began)
			})
		}
	}
}

// grab sends one request, and returns its outcome or the code of its problem, and the packet.
func (o *outageSite) grab(user string) (code string, packet int64) {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "https://id.test", "aud": "hongbao",
		"sub": user, "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = "k1"
	text, err := token.SignedString([]byte(tokenSecret))
	if err != nil {
		return err.Error(), 0
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, o.url+"/v1/campaigns/rain/grabs",
		strings.NewReader(`{"request_id":"r-`+user+`"}`))
	if err != nil {
		return err.Error(), 0
	}
	req.Header.Set("Authorization", "Bearer "+text)
	req.Header.Set("Content-Type", "application/json")
	res, err := o.client.Do(req)
	if err != nil {
		return err.Error(), 0
	}
	defer res.Body.Close()
	var got struct {
		serve.GrabAnswer
		Code string
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		return err.Error(), 0
	}
	if len(got.Receipts) > 0 {
		packet = got.Receipts[0].Packet
	}
	return got.Outcome + got.Code, packet
}

// opens waits until the shard is open again, and grabs are granted.
func (o *outageSite) opens() {
	o.t.Helper()
	testkit.Eventually(o.t, startTime, func() bool {
		code, _ := o.grab("late")
		return code == string(hongbao.OutcomeGranted)
	}, "grabs are granted again")
}

// judge compares the answers with the receipts in Redis, repeats the grabs without a receipt, and returns the row.
func (o *outageSite) judge(row *redisOutage, rate int, failed, healed time.Time) string {
	t := o.t
	t.Helper()
	shard := o.store.Home("rain")
	won, err := o.rdb.HKeys(t.Context(), shard.Keys.Receipts("rain")).Result()
	require.NoError(t, err)
	has := map[string]bool{}
	for _, user := range won {
		has[user] = true
	}
	var took []time.Duration
	counts := map[string]int{}
	untrue := 0
	for _, g := range o.grabs {
		if (g.code == "unavailable" || g.code == "frozen" || g.code == "busy") && has[g.user] {
			untrue++
		}
		if g.began.After(failed) && g.began.Before(healed) {
			counts[g.code]++
			took = append(took, g.took)
		}
	}
	lost, owner := 0, map[int64]string{}
	for _, g := range o.grabs {
		packet := g.packet
		if g.code != string(hongbao.OutcomeGranted) {
			code, again := o.grab(g.user)
			if packet = again; code != string(hongbao.OutcomeGranted) {
				lost++
				continue
			}
		}
		require.Empty(t, owner[packet], "packet %d has two users", packet)
		owner[packet] = g.user
	}
	slices.Sort(took)
	longest, p99 := took[len(took)-1], took[len(took)*99/100]
	require.LessOrEqual(t, longest, outageBound())
	require.Zero(t, untrue, "grabs that did nothing, and were granted")
	require.Zero(t, lost, "grabs without a receipt after the outage")
	granted, refused := counts[string(hongbao.OutcomeGranted)], counts["unavailable"]
	unknown, undecided := counts["outcome_unknown"], counts["frozen"]+counts["busy"]
	require.Equal(t, len(took), granted+refused+unknown+undecided, "%v", counts)
	require.True(t, refused+unknown > 0 || p99 > 300*time.Millisecond, "the fault fired")
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %.2f | %.2f | %d | %d |", row.name, rate, len(took), granted, refused,
		unknown, undecided, p99.Seconds(), longest.Seconds(), untrue, lost)
}

// outageTable matches the table of the rows in docs/reliability.md.
var outageTable = regexp.MustCompile(`(?m)^\| Redis is .*\n(\|.*\n)+`)

// outageKey returns the start of a row's line.
func outageKey(row *redisOutage, rate int) string { return fmt.Sprintf("| %s | %d |", row.name, rate) }

// writeOutage replaces a line in the table of the page.
func writeOutage(t *testing.T, row *redisOutage, rate int, line string) {
	t.Helper()
	var keys []string
	for _, other := range outages() {
		for _, r := range outageRates {
			keys = append(keys, outageKey(&other, r))
		}
	}
	writeLine(t, outageTable, keys, outageKey(row, rate), line)
}

// docs/reliability.md has a line for each row and rate.
func TestOutagesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	table := outageTable.FindString(string(page))
	for _, row := range outages() {
		for _, rate := range outageRates {
			require.Contains(t, table, outageKey(&row, rate))
		}
	}
}
