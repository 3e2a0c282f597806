package configs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
)

// contradictions are values that are valid alone but contradict each other. The error names both values. With the
// additional arguments in fix, the configuration is valid.
var contradictions = map[string]struct {
	args []string
	want string
	fix  []string
}{
	"lease, three renewals": {[]string{"--redis.read_timeout=2s", "--consumer.lease=6s", "--publisher.max_claim_age=5s",
		"--publisher.attempt_time=5s"},
		"flag --redis.read_timeout: redis.read_timeout: it is 2s, want it below a third of consumer.lease, which is 6s " +
			"(flag --consumer.lease): a lease is renewed every third of it",
		[]string{"--consumer.lease=6.1s"}},
	"call timeout": {[]string{"--producer.call_timeout=3s"},
		"default: redis.read_timeout: it is 3s, want it below producer.call_timeout, which is 3s (flag " +
			"--producer.call_timeout): else a call whose answer is lost can't be repeated",
		[]string{"--redis.read_timeout=2999ms"}},
	"durability": {[]string{"--producer.durability_timeout=5s"},
		"producer.durability_timeout: it is 5s, want it below producer.call_timeout, which is 5s (default)",
		[]string{"--producer.call_timeout=6s"}},
	"lock timeout": {[]string{"--ledger.lock_timeout=10s"},
		"ledger.lock_timeout: it is 10s, want it below ledger.timeout, which is 10s (default)",
		[]string{"--ledger.timeout=11s"}},
	"backoff": {[]string{"--consumer.backoff=11m"},
		"consumer.backoff: it is 11m, want it not above consumer.max_backoff, which is 10m (default)",
		[]string{"--consumer.max_backoff=11m"}},
	"handle": {[]string{"--consumer.handle_timeout=10s", "--publisher.attempt_time=9s"},
		"ledger.timeout: it is 10s, want it below consumer.handle_timeout, which is 10s (flag",
		[]string{"--ledger.timeout=9s"}},
	"drain": {[]string{"--consumer.drain_timeout=9s"},
		"ledger.timeout: it is 10s, want it not above consumer.drain_timeout, which is 9s (flag",
		[]string{"--consumer.drain_timeout=10s"}},
	"drain, on purpose": {[]string{"--consumer.drain_timeout=1ms"}, "ledger.timeout: it is 10s",
		[]string{"--consumer.drain_timeout=0s"}},
	"claim age": {[]string{"--publisher.attempt_time=21s"},
		"publisher.attempt_time: it is 21s, want it not above publisher.max_claim_age",
		[]string{"--publisher.max_claim_age=21s"}},
	"claim age, lease": {[]string{"--publisher.max_claim_age=30s"},
		"publisher.max_claim_age: it is 30s, want it below consumer.lease", []string{"--consumer.lease=31s"}},
	"request": {[]string{"--publisher.request_timeout=16s"},
		"publisher.request_timeout: it is 16s, want it not above publisher.attempt_time",
		[]string{"--publisher.attempt_time=16s"}},
	"expiration": {[]string{"--publisher.producer_expiration=79s"},
		"publisher.max_claim_age: it is 20s, want it not above a quarter of publisher.producer_expiration, which is 79s",
		[]string{"--publisher.producer_expiration=80s"}},
	"attempts, handle": {[]string{"--consumer.handle_timeout=15s"},
		"publisher.attempt_time: it is 15s, want it below consumer.handle_timeout",
		[]string{"--consumer.handle_timeout=16s"}},
	"no kafka": {[]string{"--publisher.attempt_time=21s"}, "publisher.attempt_time",
		[]string{"--deployment.sinks=balance"}},
	"two servers": {[]string{"--redis.addrs=a:1,b:1"},
		"redis.addrs: 2 servers, but redis.mode is standalone: name one, or set redis.mode to sentinel or cluster",
		[]string{"--redis.mode=cluster"}},
	"no master name": {[]string{"--redis.mode=sentinel"}, "redis.master_name: it is empty, but redis.mode is sentinel",
		[]string{"--redis.master_name=m"}},
	"master name": {[]string{"--redis.master_name=m"},
		"redis.master_name: it is for redis.mode sentinel only, but redis.mode is standalone", []string{"--redis.mode=sentinel"}},
	"db of a cluster": {[]string{"--redis.mode=cluster", "--redis.db=1"},
		"redis.db: it is 1, but a cluster has database 0 only", []string{"--redis.db=0"}},
	"sqlite file": {[]string{"--ledger.dsn=file:x.db"},
		"ledger.dsn: ledger.driver is sqlite, which wants a plain path", []string{"--ledger.dsn=x.db"}},
	"sqlite memory": {[]string{"--ledger.dsn=:memory:"}, "ledger.dsn: ledger.driver is sqlite, which wants a plain path",
		[]string{"--ledger.dsn=x.db"}},
	"sqlite URL": {[]string{"--ledger.dsn=postgres://h/d"}, "ledger.dsn: ledger.driver is sqlite",
		[]string{"--ledger.driver=postgres"}},
	"postgres path": {[]string{"--ledger.driver=postgres"},
		"ledger.dsn: ledger.driver is postgres, which wants postgres://user@host:5432/database",
		[]string{"--ledger.dsn=host=h dbname=d"}},
	"mysql for file": {[]string{"--ledger.dsn=u@tcp(h:3306)/d"}, "ledger.dsn: ledger.driver is sqlite",
		[]string{"--ledger.driver=mysql"}},
	"mysql URL": {[]string{"--ledger.driver=mysql", "--ledger.dsn=mysql://u@h/d"},
		"ledger.dsn: ledger.driver is mysql: the DSN is not a connection string of go-sql-driver/mysql: want " +
			"user@tcp(host:3306)/database?tls=true", []string{"--ledger.dsn=u@tcp(h:3306)/d"}},
	"mysql, no database": {[]string{"--ledger.driver=mysql", "--ledger.dsn=u@tcp(h:3306)/"}, "the DSN names no database",
		[]string{"--ledger.dsn=u@tcp(h:3306)/d"}},
	"mysql, parameter": {[]string{"--ledger.driver=mysql", "--ledger.dsn=u@tcp(h:3306)/d?multiStatements=false"},
		`the DSN's parameter "multiStatements" is not allowed: want only tls, `, []string{"--ledger.dsn=u@tcp(h:3306)/d?tls=true"}},
	"no sinks": {[]string{"--deployment.sinks="},
		"deployment.sinks: it is empty: name balance, kafka or both, or no one is paid",
		[]string{"--deployment.sinks=kafka"}},
	"no redis":   {[]string{"--redis.addrs="}, "redis.addrs: it is empty", []string{"--redis.addrs=a:1"}},
	"no brokers": {[]string{"--kafka.brokers="}, "kafka.brokers: it is empty", []string{"--deployment.sinks=balance"}},
	"TLS off": {[]string{"--kafka.tls_server_name=x"}, "kafka.tls: it is false, but another kafka.tls_... is set",
		[]string{"--kafka.tls"}},
	"SASL off": {[]string{"--kafka.sasl_username=x"},
		"kafka.sasl_mechanism: it is none, but user or password are set", []string{"--kafka.sasl_username="}},
	"unsafe": {[]string{"--unsafe.allow=fsink"}, `unsafe.allow: "fsink" does not exist: want fsync, full_page_writes, synchronous_commit, innodb_flush_log_at_trx_commit, innodb_doublewrite, sync_binlog, redis_appendonly, redis_settings, redis_run_id, redis_full_coverage, kafka_founding, sasl_plain_without_tls, remote_token_without_tls, balance_listen_without_tls, serve_listen_without_tls, control_listen_without_tls, webhook_without_tls; did you mean fsync?`, nil},
	"remote, no URL": {[]string{"--settlement.kind=remote", "--remote.retention=24h", "--remote.queryable=true"},
		"remote.url: it is empty, but settlement.kind is remote", []string{"--remote.url=https://bank.internal"}},
	"remote, not declared": {[]string{"--settlement.kind=remote", "--remote.url=https://b"},
		"remote.retention: it and remote.queryable have no default: declare both",
		[]string{"--remote.retention=24h", "--remote.queryable=true"}},
	"remote, half declared": {[]string{"--settlement.kind=remote", "--remote.url=https://b", "--remote.queryable=false"},
		"remote.retention: it and remote.queryable have no default: declare both", []string{"--remote.retention=0s"}},
	"remote, long id": {[]string{"--settlement.kind=remote", "--remote.url=https://b", "--remote.retention=24h",
		"--remote.queryable=true", "--deployment.id=" + strings.Repeat("d", 55)},
		"deployment.id: it has 55 characters, but settlement.kind is remote: want at most 54",
		[]string{"--deployment.id=d"}},
	"remote, claim and lease": {[]string{"--settlement.kind=remote", "--remote.url=https://b", "--remote.retention=24h",
		"--remote.queryable=true", "--remote.claim_time=30s"},
		"remote.claim_time: it is 30s, want it below consumer.lease", []string{"--consumer.lease=31s"}},
	"remote, request and claim": {[]string{"--remote.timeout=21s"},
		"remote.timeout: it is 21s, want it not above remote.claim_time", []string{"--remote.claim_time=21s"}},
	"remote, margin": {[]string{"--remote.retention=24h", "--remote.margin=24h"},
		"remote.margin: it is 24h, want it below remote.retention", []string{"--remote.retention=25h"}},
	"remote, claim and margin": {[]string{"--remote.retention=24h", "--remote.margin=20s"},
		"remote.claim_time: it is 20s, want it below remote.margin", []string{"--remote.margin=21s"}},
	"remote, final": {[]string{"--remote.queryable", "--remote.query_final=19s"},
		"remote.claim_time: it is 20s, want it not above remote.query_final", []string{"--remote.query_final=20s"}},
	"remote, final, no queries": {[]string{"--remote.query_final=1m", "--remote.queryable=false"},
		"remote.query_final: want it 0s with remote.queryable false", []string{"--remote.queryable"}},
	"remote, batches": {[]string{"--remote.batch_credits=10", "--remote.retention=0s"},
		"remote.batch_credits: it is 10, want it 0", []string{"--remote.retention=24h"}},
	"remote, TLS": {[]string{"--remote.url=http://b", "--remote.tls_server_name=x"},
		"remote.url: it does not begin with https://", []string{"--remote.url=https://b"}},
	"balance, handle": {[]string{"--balance.handle_timeout=30s"},
		"balance.handle_timeout: it is 30s, want it below balance.write_timeout", []string{"--balance.write_timeout=31s"}},
	"balance, certificate": {[]string{"--balance.tls_cert=/no/such"},
		"balance.tls_key: it is empty, but balance.tls_cert is set", []string{"--balance.tls_cert="}},
	"balance, key": {[]string{"--balance.tls_key=/no/such"},
		"balance.tls_cert: it is empty, but balance.tls_key is set", []string{"--balance.tls_key="}},
	"serve, head": {[]string{"--serve.read_timeout=4s"},
		"serve.read_header_timeout: it is 5s, want it not above serve.read_timeout", []string{"--serve.read_header_timeout=4s"}},
	"serve, certificate": {[]string{"--serve.tls_cert=/no/such"},
		"serve.tls_key: it is empty, but serve.tls_cert is set", []string{"--serve.tls_cert="}},
	"control, certificate": {[]string{"--control.tls_cert=/no/such"},
		"control.tls_key: it is empty, but control.tls_cert is set", []string{"--control.tls_cert="}},
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	for name, c := range contradictions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&input{args: c.args}).problems(t)
			require.Len(t, got, 1, "%q", got)
			require.Contains(t, got[0], c.want)
			if c.fix == nil {
				return
			}
			args := append(c.args, c.fix...)
			if strings.HasPrefix(c.fix[0], "--redis.addrs") || strings.HasPrefix(c.fix[0], "--deployment.sinks=kafka") {
				args = c.fix // repeated flags of a list add up, so fix replaces args
			}
			(&input{args: args}).must(t)
		})
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	user := (&input{args: []string{"--redis.username=u"}}).problems(t)
	require.Equal(t, []string{"flag --redis.username: redis.username: there is no password for it: set " +
		"HONGBAO_REDIS_PASSWORD or HONGBAO_REDIS_PASSWORD_FILE"}, user)
	(&input{args: []string{"--redis.username=u"}, env: []string{"HONGBAO_REDIS_PASSWORD=x"}}).must(t)
	require.Contains(t, (&input{env: []string{"HONGBAO_REDIS_SENTINEL_PASSWORD=x"}}).problems(t)[0],
		"are for redis.mode sentinel only")

	plain := input{args: []string{"--kafka.sasl_mechanism=plain"}}
	require.Len(t, plain.problems(t), 3)
	plain.args = append(plain.args, "--kafka.sasl_username=u")
	plain.env = []string{"HONGBAO_KAFKA_SASL_PASSWORD=x"}
	require.Equal(t, []string{"flag --kafka.sasl_mechanism: kafka.sasl_mechanism: plain sends the password in clear text: " +
		"set kafka.tls to true, or use scram-sha-512, or add sasl_plain_without_tls to unsafe.allow"}, plain.problems(t))
	allowed := plain
	allowed.args = append(allowed.args, "--unsafe.allow=sasl_plain_without_tls,fsync")
	c := allowed.must(t)
	require.Equal(t, "PLAIN", c.PublisherConfig().SASL.Name())
	const dsn = "postgres://ledger/money"
	allowed.args = append(allowed.args, "--ledger.driver=postgres", "--ledger.dsn="+dsn)
	require.Equal(t, postgres.Database{DSN: dsn, UnsafeAllow: []string{"fsync"}}, allowed.must(t).LedgerConfig().Database,
		"the ledger gets only the names of its own checks")
	for name, want := range map[string]string{"scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		plain.args[0] = "--kafka.sasl_mechanism=" + name
		require.Equal(t, want, plain.must(t).PublisherConfig().SASL.Name())
	}
	plain.env = []string{"HONGBAO_KAFKA_SASL_PASSWORD=hunter2\u0378"} // an unassigned code point
	got := plain.problems(t)
	require.Contains(t, got[0], "user or password contain characters that SCRAM does not allow")
	require.NotContains(t, got[0], "hunter2")
}

// certificate writes a new certificate and its key to two files. The key's file gets the given mode.
func certificate(t *testing.T, mode os.FileMode) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return write(t, "cert.pem", text("CERTIFICATE", der), 0o644), write(t, "key.pem", text("PRIVATE KEY", pkcs), mode)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, 0o600)
	_, otherKey := certificate(t, 0o600)
	openCert, openKey := certificate(t, 0o644)
	junk := write(t, "junk.pem", "junk", 0o600)
	sections := map[string][]string{
		"redis": {"--redis.tls"}, "kafka": {"--kafka.tls"}, "remote": {"--remote.url=https://bank.internal"}, "balance": {}, "serve": {},
	}
	for name, c := range map[string]struct {
		args []string // SECTION stands for each of the sections
		want string
	}{
		"no pair": {[]string{"--SECTION.tls_cert=" + cert, "--SECTION.tls_key=" + otherKey},
			"SECTION.tls_cert: " + cert + " and " + otherKey + " are not a pair"},
		"open key": {[]string{"--SECTION.tls_cert=" + openCert, "--SECTION.tls_key=" + openKey},
			"SECTION.tls_key: " + openKey + " is open to others than its owner (mode 0644)"},
		"no key":  {[]string{"--SECTION.tls_cert=" + cert}, "SECTION.tls_key: it is empty, but SECTION.tls_cert is set"},
		"no cert": {[]string{"--SECTION.tls_key=" + key}, "SECTION.tls_cert: it is empty, but SECTION.tls_key is set"},
		"absent cert": {[]string{"--SECTION.tls_cert=/absent", "--SECTION.tls_key=" + key},
			"SECTION.tls_cert: it can't be read"},
		"absent key": {[]string{"--SECTION.tls_cert=" + cert, "--SECTION.tls_key=/absent"},
			"SECTION.tls_key: it can't be read"},
		"absent CA":    {[]string{"--SECTION.tls_ca=/absent"}, "SECTION.tls_ca: it can't be read"},
		"CA is no PEM": {[]string{"--SECTION.tls_ca=" + junk}, "SECTION.tls_ca: " + junk + " contains no certificate in PEM"},
	} {
		for section, on := range sections {
			args := slices.Clone(on)
			for _, a := range c.args {
				args = append(args, strings.Replace(a, "SECTION", section, 1))
			}
			if (section == "balance" || section == "serve") && strings.Contains(c.want, "tls_ca") {
				continue // a server's section has no tls_ca
			}
			got := (&input{args: args}).problems(t)
			require.Len(t, got, 1, "%s %s", section, name)
			require.Contains(t, got[0], strings.ReplaceAll(c.want, "SECTION", section), name)
		}
	}
	c := (&input{args: []string{"--kafka.tls", "--kafka.tls_ca=" + cert, "--kafka.tls_cert=" + cert,
		"--kafka.tls_key=" + key, "--kafka.tls_server_name=k"}}).must(t)
	have := c.PublisherConfig().TLS
	require.NotNil(t, have.GetClientCertificate)
	require.NotNil(t, have.RootCAs)
	require.Equal(t, "k", have.ServerName)
	require.False(t, have.InsecureSkipVerify)
	require.EqualValues(t, 0x0303, have.MinVersion)
	c = (&input{args: []string{"--remote.url=https://b", "--remote.tls_ca=" + cert, "--remote.tls_cert=" + cert,
		"--remote.tls_key=" + key,
		"--remote.tls_server_name=r"}}).must(t)
	have = c.RemoteConfig().TLS
	require.NotNil(t, have.GetClientCertificate)
	require.NotNil(t, have.RootCAs)
	require.Equal(t, "r", have.ServerName)
	require.EqualValues(t, 0x0303, have.MinVersion)
	require.Nil(t, (&input{args: []string{"--remote.url=https://b"}}).must(t).RemoteConfig().TLS, "the system's roots")
}

// A grab may take longer than serve.write_timeout. Only the server refuses that, because only a server writes answers to
// grabs.
func TestCallTimeoutConcernsOnlyServe(t *testing.T) {
	t.Parallel()
	for knob, most := range map[string]int{"call": 26, "queue": 23, "undecided": 22} { // the others: 2 s, 5 s and 1 s
		flag := "--producer." + knob + "_timeout=%ds"
		c := (&input{args: []string{fmt.Sprintf(flag, most+1)}}).must(t)
		require.ErrorContains(t, c.CheckServe(), "add up to 30s, want less than serve.write_timeout, which is 30s", knob)
		c = (&input{args: []string{fmt.Sprintf(flag, most)}}).must(t)
		require.NoError(t, c.CheckServe())
	}
}

// A check without TLS protects secrets and users' data, not money.
func TestProtects(t *testing.T) {
	t.Parallel()
	require.Equal(t, "users' data and coupon codes", Protects(unsafeWebhook))
	require.Equal(t, "passwords, keys and users' data", Protects(UnsafeControlListen))
	require.Equal(t, "the topic from another deployment", Protects(UnsafeKafkaFounding))
	for _, name := range unsafeNames() {
		if !strings.HasSuffix(name, "_without_tls") && name != UnsafeKafkaFounding {
			require.Equal(t, "money", Protects(name), name)
		}
	}
}

// A client CA is set, but the server's certificate is not. Only the server refuses that, because a chart may give the
// certificate to the server's pods only.
func TestClientAuthorityConcernsOnlyItsServer(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*Config) error{"serve.tls": (*Config).CheckServe, "control.tls": (*Config).CheckControl} {
		c := (&input{args: []string{"--ledger.dsn=x.db", "--" + name + "_client_ca=/no/such"}}).must(t)
		require.ErrorContains(t, check(c), name+"_client_ca is set, but "+name+"_cert is not: set both or none")
		require.NoError(t, check((&input{args: []string{"--ledger.dsn=x.db"}}).must(t)))
	}
	require.ErrorContains(t, (&input{}).must(t).CheckControl(), "ledger.dsn is empty: the administration needs the ledger")
}

// The knobs that section serve had for the administration are refused in the file and in the environment, with what to
// do.
func TestMovedKnobs(t *testing.T) {
	t.Parallel()
	got := (&input{yaml: "serve:\n  control_listen: 127.0.0.1:1\n  replay_topics: [a]\n",
		env: []string{"HONGBAO_SERVE_CONTROL_TLS_CERT=a.pem"}}).problems(t)
	require.Len(t, got, 3)
	for i, want := range []string{"hongbao.yaml:2: serve.control_listen: it is control.listen now: rename it, and run `hongbao control`",
		"hongbao.yaml:3: serve.replay_topics: it is control.replay_topics now",
		"environment HONGBAO_SERVE_CONTROL_TLS_CERT: it is control.tls_cert now"} {
		require.Contains(t, got[i], want)
		require.Contains(t, got[i], "set control.read_timeout, control.write_timeout and control.drain_timeout, too")
	}
	for old, now := range moved {
		require.Nil(t, find(old), old)
		require.NotNil(t, find(now), now)
	}
}
