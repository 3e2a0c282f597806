package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

const balanceToken = "t0ken-of-the-balance-tests-0123456"

// startBalance starts `hongbao balance` on the address, over a database of its own unless the environment names
// another, with a client that has balanceToken and more than it will need.
func startBalance(t *testing.T, addr, dsn string, env ...string) *program {
	t.Helper()
	env = append([]string{"HONGBAO_LEDGER_DSN=" + dsn, "HONGBAO_LOG_FORMAT=json"}, env...)
	client := runProgram(t, append(env, "HONGBAO_BALANCE_TOKEN="+balanceToken), "balance", "client", "add", "worker",
		"--scope=credits:write,credits:read,accounts:read")
	require.NotContains(t, client.out+client.err, balanceToken)
	fund := runProgram(t, env, "balance", "fund", "worker", "--amount=1000000000", "--currency=CNY", "--id=budget", "--by=ann",
		"--why=tests")
	require.Zero(t, fund.code, "%s %s", fund.err, client.err) // the token may be there from an earlier start
	p := start(t, env, "balance", "--balance.listen="+addr)
	p.says("serving balances")
	return p
}

// call sends one request to the balance server and decodes the answer.
func call(t *testing.T, method, url, body string) (status int, answer map[string]any) {
	t.Helper()
	return callAs(t, method, url, balanceToken, body)
}

func callAs(t *testing.T, method, url, token, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", `"k1"`)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return resp.StatusCode, answer
}

// The server runs alone: a credit outlives it, a stop is clean, and a bad configuration is refused.
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
	require.Contains(t, other.err, "balance.listen", "the address is taken, and it says which knob that is")
	short := runProgram(t, []string{"HONGBAO_BALANCE_TOKEN=short", "HONGBAO_LEDGER_DSN=" + dsn}, "balance", "client", "add", "c2")
	require.Equal(t, 2, short.code)
	require.Contains(t, short.err, "32 to 512")
	empty := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + filepath.Join(t.TempDir(), "other.db")}, "balance")
	require.NotZero(t, empty.code)
	require.Contains(t, empty.err, "ledger.dsn", "a wrong database is not made into a balance system")
	onLine := runProgram(t, nil, "balance", "client", "add", "c2", "--balance.token="+balanceToken)
	require.Equal(t, 2, onLine.code, "a secret does not belong on the command line")
	require.NotContains(t, onLine.err, balanceToken)
}

// Tokens are created, listed by the beginnings of their hashes, and revoked. A fund is filled once under one id.
func TestBalanceClients(t *testing.T) {
	t.Parallel()
	addr, env := testkit.FreeAddr(t), []string{"HONGBAO_LEDGER_DSN=" + filepath.Join(t.TempDir(), "balance.db"),
		"HONGBAO_LOG_FORMAT=json"}
	ok := func(args ...string) string {
		t.Helper()
		r := runProgram(t, env, append([]string{"balance"}, args...)...)
		require.Zero(t, r.code, r.err)
		return r.out
	}
	token := strings.TrimSpace(ok("client", "add", "shop"))
	require.Len(t, token, 43)
	var help struct{ Token, ID string }
	require.NoError(t, json.Unmarshal([]byte(ok("client", "add", "helpdesk", "--scope=accounts:read", "--json")), &help))
	for range 2 {
		require.Equal(t, "fund of shop: 5.00 CNY put into it, 0.00 CNY credited, 5.00 CNY left\n",
			ok("fund", "shop", "--amount=500", "--currency=CNY", "--id=b1", "--by=ann", "--why=budget"))
	}
	again := runProgram(t, env, "balance", "fund", "shop", "--amount=501", "--currency=CNY", "--id=b1", "--by=ann",
		"--why=budget")
	require.NotZero(t, again.code)
	p := start(t, env, "balance", "--balance.listen="+addr)
	p.says("serving balances")
	ask := func(method, path, token, body string) int {
		t.Helper()
		status, _ := callAs(t, method, "http://"+addr+path, token, body)
		return status
	}
	credit := func(amount int) string {
		return fmt.Sprintf(`{"reference":"r%d","account":"u1","currency":"CNY","amount":%[1]d}`, amount)
	}
	require.Equal(t, 503, ask("POST", "/v1/credits", token, credit(501)), "more than the fund has")
	require.Equal(t, 201, ask("POST", "/v1/credits", token, credit(500)))
	require.Equal(t, 403, ask("GET", "/v1/accounts/u1", token, ""))
	require.Equal(t, 200, ask("GET", "/v1/accounts/u1", help.Token, ""))
	var list clients
	require.NoError(t, json.Unmarshal([]byte(ok("client", "list", "--json")), &list))
	require.Equal(t, []clientFund{{"shop", "CNY", 500, 500, 0, 1}}, list.Funds)
	require.Len(t, list.Tokens, 2)
	require.NotContains(t, ok("client", "list"), token)
	require.Equal(t, "differences: 0\n", ok("check"))
	ok("client", "revoke", "helpdesk", "--token", help.ID)
	testkit.Eventually(t, 20*time.Second, func() bool { return ask("GET", "/v1/accounts/u1", help.Token, "") == 401 },
		"the token is refused")
	require.Equal(t, 200, ask("GET", "/v1/credits/r500", token, ""))
	db, err := sql.Open("sqlite", strings.TrimPrefix(env[0], "HONGBAO_LEDGER_DSN="))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE credit_fund SET credited = credited - 1")
	require.NoError(t, errors.Join(err, db.Close()))
	r := runProgram(t, env, "balance", "check")
	require.Equal(t, 3, r.code)
	require.Equal(t, "fund of shop, CNY: sum of the credits = credited: want 500, got 499\ndifferences: 1\n", r.out)
}

// Both ends as processes, both killed on the way: every grant is credited once. The worker shows that its breaker stops
// requests while the remote is down.
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
			_, text := ask(t, ops+"/metrics")
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
	report := decided[audit.Report](t, d.ok("audit", "--json", "--wait", "20s"))
	require.Equal(t, int64(packets), report.Total.Settled, "the audit asked the remote for each of them")
	require.Len(t, report.LeftOut, 1, "the topic alone: %v", report.LeftOut)
	unasked := decided[audit.Report](t, d.ok("audit", "--json", "--remote.queryable=false"))
	require.Contains(t, strings.Join(unasked.LeftOut, "; "), "the remote balance system")
	for user, amount := range want {
		_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
		require.Equal(t, []any{map[string]any{"currency": "CNY", "balance": float64(amount), "credits": 1.0}}, a["balances"],
			user)
	}
	bank.Signal(syscall.SIGTERM)
	require.Zero(t, bank.wait(20*time.Second).code)
}

// The balance system has another credit under a grant's reference: the grant's campaign is paused, and a person
// decides.
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
	for packet := 1; packet <= 10; packet++ { // whichever packets were given
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
	report := decided[audit.Report](t, d.run("audit", "--json").out)
	require.Equal(t, map[audit.Kind]int64{audit.Different: 5, audit.DeadLetter: 5}, report.Found,
		"the audit sees what the remote has")
}

// A requeued dead letter is looked up at the remote, although sink balance counts its grant as finished.
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
	for _, n := range []string{"4", "0"} { // the second time there is nothing to requeue
		d.ok("dead", "requeue", "--class", "permanent", "--expect", n, "--by", "ann", "--why", "the account is open again")
	}
	for user, amount := range want {
		_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
		require.Equal(t, []any{map[string]any{"currency": "CNY", "balance": float64(amount), "credits": 1.0}}, a["balances"],
			user)
	}
	require.Equal(t, audit.Agrees, d.auditNow().Verdict)
	require.Equal(t, want["u0000"]+want["u0001"]+want["u0002"]+want["u0003"], d.show("rain").Ledger.Granted)
	d.ok("replay", "again", "--to", "balance", "--campaign", "rain")
	require.Equal(t, audit.Agrees, d.auditNow().Verdict, "a replay repeats under the same keys")
}

// id returns the deployment's id.
func (d *deployment) id() string {
	for _, v := range d.env {
		if id, ok := strings.CutPrefix(v, "HONGBAO_DEPLOYMENT_ID="); ok {
			return id
		}
	}
	d.t.Fatal("the deployment has no id")
	return ""
}

// winners lets users grab all packets, and returns what each user must get.
func (d *deployment) winners(t *testing.T, id string, packets int) map[string]hongbao.Amount {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = d.rdb, d.store.Space(), d.id()
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

// nothingPending reports whether the group balance has finished everything that was delivered to it.
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

// A new client does not change the tables of a database that is in use. A separate command changes them.
func TestClientAddMigratesAnEmptyDatabaseOnly(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.exec("DELETE FROM hongbao_schema WHERE version > 4")
	steps := func() int64 { return d.exec("SELECT 1 FROM hongbao_schema") }
	before := steps()
	d.refused(1, []string{"balance", "client", "add", "worker"}, "this build needs version", "hongbao balance migrate")
	require.Equal(t, before, steps())
	d.exec("DROP TABLE archive, archive_shard, control, acknowledged, fence")
	d.exec("ALTER TABLE campaign DROP COLUMN loading_at")
	d.exec("ALTER TABLE api_key DROP COLUMN sponsors, DROP COLUMN largest_total")
	d.exec("DROP INDEX grants_by_campaign_user")
	d.exec("CREATE INDEX grants_by_user ON grants (user_id, campaign)")
	require.Contains(t, d.ok("balance", "migrate"), "0005_archive.sql")
	require.Greater(t, steps(), before)
	require.Contains(t, d.ok("balance", "migrate"), "up to date")
	d.ok("balance", "client", "add", "worker")
}
