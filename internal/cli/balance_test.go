package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	public "github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// The client named "worker" has two keys: one books credits, the other reads accounts. startBalance adds both to its
// database.
var (
	clientKey, balanceToken = newBankKey(access.RoleClient)
	accountKey, accountText = newBankKey(access.RoleAccountant)
)

func newBankKey(role access.Role) (access.Key, string) {
	k, text := access.NewKey(role, nil)
	k.Client = "worker"
	return k, text
}

// startBalance starts `hongbao balance` on an address with a database. The database gets both keys of client worker,
// and the client's fund gets more money than any test needs.
func startBalance(t *testing.T, addr, dsn string, env ...string) *program {
	t.Helper()
	env = append([]string{"HONGBAO_LEDGER_DSN=" + dsn, "HONGBAO_LOG_FORMAT=json"}, env...)
	for _, command := range [][]string{{"migrate"},
		{"fund", "worker", "--amount=1000000000", "--currency=CNY", "--id=budget", "--by=ann", "--why=tests"}} {
		r := runProgram(t, env, append([]string{"balance"}, command...)...)
		require.Zero(t, r.code, r.err)
	}
	cfg, err := configs.Load("", env, nil)
	require.NoError(t, err)
	require.NoError(t, app.With(t.Context(), cfg, app.Needs{Keys: true}, func(a *app.App) error {
		has, err := apikeys.Of(a).Keys(t.Context(), false)
		for _, k := range []access.Key{clientKey, accountKey} {
			if err == nil && !slices.ContainsFunc(has, func(h access.Key) bool { return h.ID == k.ID }) {
				_, err = a.Access().AddKey(t.Context(), k)
			}
		}
		return err
	}))
	p := start(t, env, "balance", "--balance.listen="+addr)
	p.says("serving balances")
	return p
}

// call sends a request to the balance server with the key that its path requires, and decodes the answer.
func call(t *testing.T, method, url, body string) (status int, answer map[string]any) {
	t.Helper()
	if strings.Contains(url, "/v1/accounts/") {
		return callAs(t, method, url, accountText, body)
	}
	return callAs(t, method, url, balanceToken, body)
}

func callAs(t *testing.T, method, url, key, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", `"k1"`)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return resp.StatusCode, answer
}

// `hongbao balance` needs no deployment. A credit survives a restart, SIGTERM ends the server cleanly, and a wrong
// configuration is refused.
func TestBalanceServer(t *testing.T) {
	t.Parallel()
	addr, dsn := testkit.FreeAddr(t), filepath.Join(t.TempDir(), "balance.db")
	p := startBalance(t, addr, dsn)
	const credit = `{"reference":"r1","account":"u1","currency":"CNY","amount":7}`
	status, first := call(t, "POST", "http://"+addr+"/v1/credits", credit)
	require.Equal(t, 201, status, "%v", first)
	p.Signal(syscall.SIGTERM)
	r := p.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.out+r.err, balanceToken)

	startBalance(t, addr, dsn)
	status, again := call(t, "POST", "http://"+addr+"/v1/credits", credit)
	require.Equal(t, 200, status)
	require.Equal(t, first, again)
	other := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + dsn}, "balance", "--balance.listen="+addr)
	require.Equal(t, 1, other.code)
	require.Contains(t, other.err, "balance.listen", "the error names the knob of the address that is in use")
	none := filepath.Join(t.TempDir(), "other.db")
	for _, command := range [][]string{{"balance"}, {"balance", "funds"}, {"key", "list"},
		{"key", "create", "--role=client", "--client=c2"}} {
		empty := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + none}, command...)
		require.Equal(t, 1, empty.code, command)
		require.Contains(t, empty.err, "`hongbao balance migrate`", command)
		require.NoFileExists(t, none, "a wrong DSN creates no database")
	}
}

// API keys of clients can be created, listed, rotated and revoked in a database that only `hongbao balance` uses. A
// repeated funding with the same id changes nothing.
func TestBalanceClients(t *testing.T) {
	t.Parallel()
	addr, env := testkit.FreeAddr(t), []string{"HONGBAO_LEDGER_DSN=" + filepath.Join(t.TempDir(), "balance.db"),
		"HONGBAO_LOG_FORMAT=json"}
	ok := func(args ...string) string {
		t.Helper()
		r := runProgram(t, env, args...)
		require.Zero(t, r.code, r.err)
		return r.out
	}
	require.Contains(t, ok("balance", "migrate"), "0012_ledger.sql")
	key := strings.TrimSpace(ok("key", "create", "--role=client", "--client=shop"))
	desk := decided[apikeys.NewKey](t, ok("key", "create", "--role=accountant", "--client=helpdesk", "--json"))
	for range 2 {
		require.Equal(t, "fund of shop: 5.00 CNY put into it, 0.00 CNY credited, 5.00 CNY left\n",
			ok("balance", "fund", "shop", "--amount=500", "--currency=CNY", "--id=b1", "--by=ann", "--why=budget"))
	}
	again := runProgram(t, env, "balance", "fund", "shop", "--amount=501", "--currency=CNY", "--id=b1", "--by=ann",
		"--why=budget")
	require.NotZero(t, again.code)
	p := start(t, env, "balance", "--balance.listen="+addr)
	p.says("serving balances")
	ask := func(method, path, key, body string) int {
		t.Helper()
		status, _ := callAs(t, method, "http://"+addr+path, key, body)
		return status
	}
	credit := func(amount int) string {
		return fmt.Sprintf(`{"reference":"r%d","account":"u1","currency":"CNY","amount":%[1]d}`, amount)
	}
	require.Equal(t, 503, ask("POST", "/v1/credits", key, credit(501)), "more than the fund has")
	require.Equal(t, 201, ask("POST", "/v1/credits", key, credit(500)))
	require.Equal(t, 403, ask("GET", "/v1/accounts/u1", key, ""))
	require.Equal(t, 403, ask("POST", "/v1/credits", desk.Text, credit(7)))
	require.Equal(t, 200, ask("GET", "/v1/accounts/u1", desk.Text, ""))
	funds := decided[struct{ Funds []clientFund }](t, ok("balance", "funds", "--json"))
	require.Equal(t, []clientFund{{"shop", "CNY", 500, 500, 0, 1}}, funds.Funds)
	list := ok("key", "list")
	require.Regexp(t, `(?m)^\w+ +client +shop +- `, list)
	require.NotContains(t, list, key)
	require.Equal(t, "differences: 0\n", ok("balance", "check"))
	id := strings.Split(key, "_")[1]
	newer := strings.TrimSpace(ok("key", "rotate", id, "--overlap=0s"))
	require.Equal(t, 200, ask("GET", "/v1/credits/r500", newer, ""), "at once")
	ok("key", "revoke", desk.ID)
	for _, dead := range []string{key, desk.Text} {
		testkit.Eventually(t, 20*time.Second, func() bool { return ask("GET", "/v1/credits", dead, "") == 401 }, "it is refused")
	}
	require.Equal(t, 200, ask("GET", "/v1/credits/r500", newer, ""))
	db, err := sql.Open("sqlite", strings.TrimPrefix(env[0], "HONGBAO_LEDGER_DSN="))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE credit_fund SET credited = credited - 1")
	require.NoError(t, errors.Join(err, db.Close()))
	r := runProgram(t, env, "balance", "check")
	require.Equal(t, 3, r.code)
	require.Equal(t, "fund of shop, CNY: sum of the credits = credited: want 500, got 499\ndifferences: 1\n", r.out)
}

// A deployment and a balance server share a ledger. Neither accepts the keys of the other, and a second deployment
// can't create keys in this ledger.
func TestKeysOfOneLedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	control, addr := testkit.FreeAddr(t), testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	startBalance(t, addr, d.dsn, d.env...)
	status, answer := callAs(t, "GET", "http://"+control+"/v1/campaigns", balanceToken, "")
	require.Equal(t, 403, status, "%v", answer)
	status, text := g.send("GET", "/v1/campaigns/rain/grabs?user=u1", "", map[string]string{"Authorization": "Bearer " + balanceToken})
	require.Equal(t, 403, status, "%s", text)
	for _, role := range []string{"viewer", "operator", "treasurer", "gateway"} {
		key := strings.TrimSpace(d.ok("key", "create", "--role", role))
		for _, path := range []string{"/v1/credits", "/v1/accounts/u1"} {
			status, answer := callAs(t, "GET", "http://"+addr+path, key, "")
			require.Equal(t, 403, status, "%s: %v", role, answer)
		}
	}
	require.Contains(t, d.ok("journal", "--json"), `"read_accounts"`, "a denial is recorded")
	other := d.with("DEPLOYMENT_ID", "another")
	for _, command := range [][]string{{"key", "list"}, {"key", "create", "--role", "client", "--client", "worker"},
		{"key", "revoke", clientKey.ID}} {
		other.refused(1, command, "belongs to deployment")
	}
}

// A worker settles at a balance server, and each process is killed in the middle. Every grant is credited once. The
// worker's metrics show that its circuit breaker stops requests while the remote is down.
func TestWorkSettlesAtTheBalanceServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2})
	const packets = 400
	d.campaign("rain", packets, 20_000)
	addr, dsn := testkit.FreeAddr(t), filepath.Join(t.TempDir(), "balance.db")
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", "http://"+addr, "REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION",
		"24h", "REMOTE_QUERYABLE", "true", "REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s",
		"REMOTE_HEADER_TIMEOUT", "900ms", "REMOTE_PAUSE", "10ms", "REMOTE_BREAKER_OPEN", "50ms", "REMOTE_BREAKER_FAILURES",
		"5", "CONSUMER_BATCH_GRANTS", "40", "REMOTE_CONCURRENCY", "4")
	want := d.winners(t, "rain", packets)
	breaker := func(ops, open string) {
		testkit.Eventually(t, 30*time.Second, func() bool {
			text := scrape(t, ops, d.id())
			return strings.Contains(text, `hongbao_remote_breaker_open{sink="balance"} `+open+"\n")
		}, "the worker shows its breaker: %s", open)
	}
	early, ops := d.watchedWorker()
	breaker(ops, "1")
	early.Kill()
	bank := startBalance(t, addr, dsn)
	booked := func() (n int) {
		for user := range want {
			_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
			n += len(a["balances"].([]any))
		}
		return n
	}
	for kill := range 3 {
		w := d.start("work")
		least := (kill + 1) * packets / 8
		testkit.Eventually(t, 60*time.Second, func() bool { return booked() >= least }, "some are credited")
		w.Kill()
		bank.Kill()
		bank = startBalance(t, addr, dsn)
	}
	w, ops := d.watchedWorker()
	testkit.Eventually(t, 60*time.Second, func() bool { return booked() == packets && d.nothingPending(t) },
		"all are credited")
	breaker(ops, "0")
	w.Signal(syscall.SIGTERM)
	require.Zero(t, w.wait(30*time.Second).code)
	report := decided[model.AuditReport](t, d.ok("audit", "--json", "--wait", "20s"))
	require.Equal(t, int64(packets), report.Total.Settled, "the audit asked the remote about every grant")
	require.Len(t, report.LeftOut, 1, "the topic alone: %v", report.LeftOut)
	unasked := decided[model.AuditReport](t, d.ok("audit", "--json", "--remote.queryable=false"))
	require.Contains(t, strings.Join(unasked.LeftOut, "; "), "the remote balance system")
	for user, amount := range want {
		_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
		require.Equal(t, []any{map[string]any{"currency": "CNY", "balance": float64(amount), "credits": 1.0}}, a["balances"],
			user)
	}
	bank.Signal(syscall.SIGTERM)
	require.Zero(t, bank.wait(20*time.Second).code)
}

// The balance system already has a different credit under a grant's reference. The grant's campaign is paused until a
// person decides.
func TestContradictionPausesTheCampaign(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	addr := testkit.FreeAddr(t)
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", "http://"+addr, "REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION",
		"24h", "REMOTE_QUERYABLE", "true", "REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s",
		"REMOTE_PAUSE", "10ms")
	startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	d.winners(t, "rain", 5)
	for packet := 1; packet <= 10; packet++ { // any of the packets may be granted
		status, a := call(t, "POST", "http://"+addr+"/v1/credits:batch", fmt.Sprintf(
			`{"credits":[{"key":"k%[1]d","reference":"%[2]s:rain:%[1]d","account":"thief","currency":"CNY","amount":1}]}`, packet, d.id()))
		require.Equal(t, 200, status, "%v", a)
	}
	w := d.start("work")
	w.says("ALARM")
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := d.rdb.XLen(t.Context(), d.store.Shard(0).Keys.Dead("balance")).Result()
		return err == nil && n == 5
	}, "five dead letters")
	w.Signal(syscall.SIGTERM)
	require.Zero(t, w.wait(30*time.Second).code)
	require.Equal(t, "paused", d.show("rain").Redis.State)
	report := decided[model.AuditReport](t, d.run("audit", "--json").out)
	require.Equal(t, map[model.DifferenceKind]int64{audit.Different: 5, audit.DeadLetter: 5}, report.Found,
		"the audit reads the remote's credits")
}

// A requeued dead letter is looked up at the remote, although sink balance has already acked its grant.
func TestRequeueAtTheBalanceServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	addr := testkit.FreeAddr(t)
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", "http://"+addr, "REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION",
		"24h", "REMOTE_QUERYABLE", "true", "REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s")
	startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	want := d.winners(t, "rain", 4)
	d.buried("balance")
	require.Equal(t, int64(4), d.auditNow().Found[audit.DeadLetter])
	for _, n := range []string{"4", "0"} { // the second requeue finds no letter
		d.ok("dead", "requeue", "--class", "permanent", "--expect", n, "--by", "ann", "--why", "the account is open again")
	}
	for user, amount := range want {
		_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
		require.Equal(t, []any{map[string]any{"currency": "CNY", "balance": float64(amount), "credits": 1.0}}, a["balances"],
			user)
	}
	require.Equal(t, model.Agrees, d.auditNow().Verdict)
	require.Equal(t, want["u0000"]+want["u0001"]+want["u0002"]+want["u0003"], d.show("rain").Ledger.Granted)
	d.ok("replay", "again", "--to", "balance", "--campaign", "rain")
	require.Equal(t, model.Agrees, d.auditNow().Verdict, "a replay repeats the same idempotency keys")
}

func (d *deployment) id() string {
	for _, v := range d.env {
		if id, ok := strings.CutPrefix(v, "HONGBAO_DEPLOYMENT_ID="); ok {
			return id
		}
	}
	d.t.Fatal("the deployment has no id")
	return ""
}

// winners lets users grab the given number of packets, and returns the amount of each user.
func (d *deployment) winners(t *testing.T, id string, packets int) map[string]hongbao.Amount {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Deployment = public.Of(d.store, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	want := map[string]hongbao.Amount{}
	for i := range packets {
		user := fmt.Sprintf("u%04d", i)
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: user})
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		want[user] = a.Receipts[0].Amount
	}
	return want
}

// nothingPending reports whether consumer group balance has no pending entry on any shard.
func (d *deployment) nothingPending(t *testing.T) bool {
	t.Helper()
	for i := range d.store.Len() {
		p, err := d.rdb.XPending(t.Context(), d.store.Shard(i).Keys.Events(), "balance").Result()
		if err != nil || p.Count > 0 {
			require.True(t, err == nil || err == redis.Nil, "%v", err)
			return false
		}
	}
	return true
}

// Commands refuse the tables of an older schema, and change nothing.
func TestOnlyMigrateMigrates(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.exec("UPDATE hongbao_schema SET applied_at = 0") // as if its last steps were missing
	for _, command := range [][]string{{"balance", "funds"}, {"key", "create", "--role", "client", "--client", "worker"}} {
		d.refused(1, command, "this build needs version", "hongbao balance migrate")
	}
	require.Positive(t, d.exec("UPDATE hongbao_schema SET applied_at = 1 WHERE applied_at = 0"))
	require.Contains(t, d.ok("balance", "migrate"), "up to date")
	d.ok("key", "create", "--role", "client", "--client", "worker")
}
