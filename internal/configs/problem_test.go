package configs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// secret is the advice in the error for a secret that is in the wrong place.
const secret = "set HONGBAO_REDIS_PASSWORD in the environment, or HONGBAO_REDIS_PASSWORD_FILE to the path of a file " +
	"with it that only its owner can read"

// mistakes has a mistake of each kind, with the expected problems. A problem says what is wrong, where it is, and what
// to do.
var mistakes = map[string]struct {
	in   input
	want []string
}{
	"unknown key": {input{yaml: "redis:\n  adrs: [a:1]\n"},
		[]string{"hongbao.yaml:2: redis.adrs: there is no such key; did you mean redis.addrs?"}},
	"unknown key far from all": {input{yaml: "redis:\n  xxxxxxxxxxxxxxxxxxxx: 1\n"},
		[]string{"hongbao.yaml:2: redis.xxxxxxxxxxxxxxxxxxxx: there is no such key"}},
	"unknown section": {input{yaml: "reddis:\n  db: 1\n"}, []string{"hongbao.yaml:1: reddis: there is no such key; did " +
		"you mean redis?"}},
	"upper case": {input{yaml: "Redis: {db: 1}\n"}, []string{"hongbao.yaml:1: Redis: there is no such key; did you " +
		"mean redis?"}},
	"unknown variable": {input{env: []string{"HONGBAO_REDIS_POOLSIZE=5"}},
		[]string{"environment HONGBAO_REDIS_POOLSIZE: there is no such setting; did you mean HONGBAO_REDIS_POOL_SIZE?"}},
	"file form of a knob that is no secret": {input{env: []string{"HONGBAO_REDIS_DB_FILE=/x"}},
		[]string{"environment HONGBAO_REDIS_DB_FILE: there is no such setting; did you mean HONGBAO_REDIS_DB?"}},
	"duration without a unit": {input{yaml: "consumer: {lease: 5}\n"},
		[]string{`hongbao.yaml:1: consumer.lease: "5" has no unit: write 5s, 5ms, ...`}},
	"zero without a unit": {input{args: []string{"--consumer.drain_timeout=0"}},
		[]string{`flag --consumer.drain_timeout: consumer.drain_timeout: "0" has no unit: write 0s, 0ms, ...`}},
	"bad duration": {input{args: []string{"--consumer.lease=5 minutes"}},
		[]string{`flag --consumer.lease: consumer.lease: "5 minutes" is not a duration: write 500ms, 30s, 10m or 24h`}},
	"duration out of bounds": {input{yaml: "consumer: {block: 1m}\n"}, []string{"hongbao.yaml:1: consumer.block: 1m: " +
		"want 10ms to 5s"}},
	"negative duration": {input{env: []string{"HONGBAO_CONSUMER_POLL=-1s"}},
		[]string{"environment HONGBAO_CONSUMER_POLL: consumer.poll: -1s: want 10ms to 1m"}},
	"negative pool": {input{env: []string{"HONGBAO_REDIS_POOL_SIZE=-5"}},
		[]string{"environment HONGBAO_REDIS_POOL_SIZE: redis.pool_size: -5: want 1 to 10000"}},
	"number too large for any": {input{yaml: "redis: {pool_size: 99999999999999999999}\n"},
		[]string{"hongbao.yaml:1: redis.pool_size: 99999999999999999999: want 1 to 10000"}},
	"no number": {input{yaml: "redis: {pool_size: 1_000}\n"}, []string{`hongbao.yaml:1: redis.pool_size: "1_000" is not an integer: write plain digits`}},
	"choice": {input{yaml: "log: {level: wran}\n"},
		[]string{`hongbao.yaml:1: log.level: "wran" does not exist: want debug, info, warn, error; did you mean warn?`}},
	"bool": {input{yaml: "redis: {tls: yes}\n"}, []string{`hongbao.yaml:1: redis.tls: "yes": write true or false`}},
	"item of a list": {input{yaml: "deployment:\n  sinks: [balance, kafak]\n"},
		[]string{`hongbao.yaml:2: deployment.sinks: "kafak" does not exist: want balance, kafka, or a name for which ` +
			`webhook.kafak.url or own.kafak.program is set; did you mean kafka?`}},
	"a sink's name": {input{yaml: "deployment: {sinks: [balance, my-crm]}\n"},
		[]string{`hongbao.yaml:1: deployment.sinks: "my-crm": want 1 to 32 of a-z 0-9, a letter first`}},
	"a webhook's name": {input{yaml: "webhook: {my_crm: {url: 'https://a'}}\n"},
		[]string{"hongbao.yaml:1: webhook.my_crm: a sink can't have this name: want 1 to 32 of a-z 0-9, a letter first"}},
	"a webhook that is no sink": {input{yaml: "webhook: {crm: {url: 'https://a'}}\n"},
		[]string{"hongbao.yaml:1: webhook.crm: deployment.sinks does not name it: add crm there, or remove the settings of this sink"}},
	"a webhook that only a variable sets": {input{env: []string{"HONGBAO_WEBHOOK_CRM_SECRET=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}},
		[]string{"environment HONGBAO_WEBHOOK_CRM_SECRET: webhook.crm: deployment.sinks does not name it: add crm there, or remove the settings of this sink"}},
	"a webhook's private address": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {url: 'https://10.0.0.7/hooks'}}\n"},
		[]string{"hongbao.yaml:2: webhook.crm.url: the endpoint has no public address: 10.0.0.7 is private; set allow_private of the webhook if this is intended"}},
	"a webhook's secret": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {url: 'https://a'}}\n", env: []string{"HONGBAO_WEBHOOK_CRM_SECRET=hunter2"}},
		[]string{"environment HONGBAO_WEBHOOK_CRM_SECRET: webhook.crm.secret: it does not begin with whsec_: want whsec_ and base64 of 24 to 64 random bytes, as `echo whsec_$(openssl rand -base64 32)` prints"}},
	"a webhook with the name of a sink": {input{yaml: "webhook: {kafka: {url: 'https://a'}}\n"},
		[]string{"hongbao.yaml:1: webhook.kafka: the name kafka is that of another sink: choose another one"}},
	"a webhook without a URL": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {max_calls: 5}}\n"},
		[]string{"default: webhook.crm.url: it is empty: set the URL to which grants are posted"}},
	"a webhook in clear text": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {url: 'http://a'}}\n"},
		[]string{"hongbao.yaml:2: webhook.crm.url: http would send grants in clear text: set an https URL, or add webhook_without_tls to unsafe.allow"}},
	"unknown key of a webhook": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {ulr: 'https://a'}}\n"},
		[]string{"hongbao.yaml:2: webhook.crm.ulr: there is no such key; did you mean webhook.crm.url?",
			`hongbao.yaml:1: deployment.sinks: "crm" does not exist: want balance, kafka, or a name for which webhook.crm.url or own.crm.program is set`}},
	"a webhook's secret in the file": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {url: 'https://a', secret: hunter2}}\n"},
		[]string{"hongbao.yaml:2: webhook.crm.secret: a secret must not be here, where others can read it: remove it, change it, and " +
			strings.ReplaceAll(secret, "REDIS_PASSWORD", "WEBHOOK_CRM_SECRET")}},
	"attempts of a webhook": {input{yaml: "deployment: {sinks: [crm]}\nwebhook: {crm: {url: 'https://a', max_attempts: 1}}\n"},
		[]string{"hongbao.yaml:2: webhook.crm.max_attempts: it is 1: want 0, or at least 2, so that a grant that kills its workers makes no dead letters of others"}},
	"item twice": {input{args: []string{"--deployment.sinks=kafka,kafka"}},
		[]string{`flag --deployment.sinks: deployment.sinks: "kafka" appears twice`}},
	"empty item": {input{env: []string{"HONGBAO_KAFKA_BROKERS=a:1,,b:1"}},
		[]string{`environment HONGBAO_KAFKA_BROKERS: kafka.brokers: "a:1,,b:1": an item is empty`}},
	"no port": {input{yaml: "redis: {addrs: [localhost]}\n"},
		[]string{`hongbao.yaml:1: redis.addrs: "localhost": want host:port, as 10.0.0.7:6379 or [::1]:6379`}},
	"prefix": {input{yaml: "deployment: {key_prefix: 'a{b'}\n"},
		[]string{`hongbao.yaml:1: deployment.key_prefix: "a{b": want 1 to 32 bytes without {, }, : or white space`}},
	"topic":      {input{yaml: "kafka: {topic: ..}\n"}, []string{`hongbao.yaml:1: kafka.topic: "..": want 1 to 249 of a-z A-Z 0-9 . _ -, not "." or ".."`}},
	"id":         {input{yaml: "deployment: {id: a b}\n"}, []string{`hongbao.yaml:1: deployment.id: "a b": want 1 to 64 of a-z A-Z 0-9 . _ -`}},
	"line break": {input{args: []string{"--redis.username=a\nb"}}, []string{`flag --redis.username: redis.username: "a\nb": a line break or a zero byte is not allowed`}},
	"key twice": {input{yaml: "redis:\n  db: 1\n  db: 2\n"},
		[]string{"hongbao.yaml:3: redis.db: it is in line 2 already: remove one of the two"}},
	"section twice": {input{yaml: "redis: {db: 1}\nredis: {db: 2}\n"}, []string{"hongbao.yaml:2: redis: it is in " +
		"line 1 already: remove one of the two"}},
	"twice, two styles": {input{yaml: "redis.db: 1\nredis: {db: 2}\n"},
		[]string{"hongbao.yaml:2: redis.db: it is in line 1 already: remove one of the two"}},
	"two documents": {input{yaml: "redis: {db: 1}\n---\nredis: {db: 2}\n"},
		[]string{"hongbao.yaml: something follows the first document: write one document only, without a line ---"}},
	"no YAML": {input{yaml: "redis: [\n"}, []string{"hongbao.yaml: it is not YAML: line 1: did not find expected " +
		"node content"}},
	"no map":         {input{yaml: "- redis\n"}, []string{`hongbao.yaml:1: want keys with values here, one a line, as "name: value"`}},
	"section no map": {input{yaml: "redis: 5\n"}, []string{`hongbao.yaml:1: redis: want keys with values here, one a line, as "name: value"`}},
	"no value": {input{yaml: "redis:\n  db:\n"}, []string{"hongbao.yaml:2: redis.db: there is no value: set " +
		"one, or remove the key for the default"}},
	"list for a text": {input{yaml: "redis: {db: [1]}\n"}, []string{"hongbao.yaml:1: redis.db: want one value of type " +
		"integer"}},
	"map for a list": {input{yaml: "redis: {addrs: {a: 1}}\n"}, []string{"hongbao.yaml:1: redis.addrs: want one value " +
		"of type list"}},
	"list in a list": {input{yaml: "redis: {addrs: [[a]]}\n"}, []string{"hongbao.yaml:1: redis.addrs: want a list of " +
		"plain texts without commas"}},
	"empty YAML item": {input{yaml: "redis: {addrs: ['']}\n"}, []string{"hongbao.yaml:1: redis.addrs: an item is empty"}},
	"alias": {input{yaml: "redis: {username: &u x, master_name: *u}\n"},
		aliases("redis.username", "redis.master_name")},
	"tag": {input{yaml: "redis: {db: !!int 5}\n"}, aliases("redis.db")},
	"secret in a file": {input{yaml: "redis: {password: hunter2}\n"},
		[]string{"hongbao.yaml:1: redis.password: a secret must not be here, where others can read it: remove it, change " +
			"it, and " + secret}},
	"secret on the command line": {input{args: []string{"--redis.password=hunter2"}},
		[]string{"flag --redis.password: redis.password: a secret must not be here, where others can read it: remove it, " +
			"change it, and " + secret}},
	"secret's file in the file": {input{yaml: "redis: {password_file: /x}\n"},
		[]string{"hongbao.yaml:1: redis.password_file: it is not for this file: set HONGBAO_REDIS_PASSWORD_FILE in the " +
			"environment"}},
	"secret twice": {input{env: []string{"HONGBAO_REDIS_PASSWORD=a", "HONGBAO_REDIS_PASSWORD_FILE=/x"}},
		[]string{"environment HONGBAO_REDIS_PASSWORD_FILE: redis.password: HONGBAO_REDIS_PASSWORD is set too: unset one of " +
			"the two"}},
	"a value that is overridden": {input{yaml: "redis: {db: x}\n", env: []string{"HONGBAO_REDIS_DB=1"}},
		[]string{`hongbao.yaml:1: redis.db: "x" is not an integer: write plain digits`}},
	"all at once": {input{yaml: "redis: {db: x, tls: 1}\n", env: []string{"HONGBAO_X=1"},
		args: []string{"--log.level=loud"}},
		[]string{`hongbao.yaml:1: redis.db: "x" is not an integer: write plain digits`, `hongbao.yaml:1: redis.tls: "1": write true or false`,
			"environment HONGBAO_X: there is no such setting",
			`flag --log.level: log.level: "loud" does not exist: want debug, info, warn, error`}},
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.in.problems(t)
			require.Equal(t, c.want, got)
			require.NotContains(t, strings.Join(got, "\n"), "hunter2")
		})
	}
}

func aliases(knobs ...string) []string {
	var out []string
	for _, k := range knobs {
		out = append(out, "hongbao.yaml:1: "+k+": anchors, aliases and tags are refused: write the value itself")
	}
	return out
}

func TestPasswordInDSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]bool{
		"hongbao.db": false,
		"postgres://hongbao@host/db?sslmode=require":    false,
		"host=a user=b dbname=c":                        false,
		"postgres://hongbao:hunter2@host/db":            true,
		"postgresql://hongbao:hun/ter2@host/db":         true,
		"postgres://host/db?password=hunter2":           true,
		"postgres://host/db?user=a&PassWord=hunter2":    true,
		"postgres://host/db?pass%77ord=hunter2":         true,
		"postgres://host/db?sslpassword=hunter2":        true,
		"host=a password = hunter2":                     true,
		"password='hunter2' host=a":                     true,
		"postgres://hongbao:hunter2@host:not-a-port/db": true,
		"hongbao@tcp(host:3306)/db?tls=true":            false,
		"hongbao@unix(/run/mysqld.sock)/db":             false,
		"hongbao:hunter2@tcp(host:3306)/db":             true,
		"hongbao:hun:@(/ter2@tcp(host:3306)/db":         true,
		"hongbao:hunter2@unix(/run/mysqld.sock)/db":     true,
		"hongbao:hunter2@/db":                           true,
		":hunter2@tcp/db":                               true,
	} {
		driver := "postgres"
		switch {
		case dsn == "hongbao.db":
			driver = "sqlite"
		case strings.Contains(dsn, "@") && !strings.Contains(dsn, "://"):
			driver = "mysql"
		}
		in := input{args: []string{"--ledger.driver=" + driver, "--ledger.dsn=" + dsn}}
		if !want {
			require.Equal(t, dsn, in.must(t).Ledger.DSN.Reveal())
			continue
		}
		got := strings.Join(in.problems(t), "\n")
		require.Contains(t, got, "flag --ledger.dsn: ledger.dsn: it contains a password", dsn)
		require.Contains(t, got, "HONGBAO_LEDGER_DSN_FILE")
		require.NotContains(t, got, "ter2")
		in = input{env: []string{"HONGBAO_LEDGER_DRIVER=" + driver, "HONGBAO_LEDGER_DSN=" + dsn}}
		require.Equal(t, dsn, in.must(t).Ledger.DSN.Reveal())
	}
}

func TestSecretFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{
		write(t, "world", "hunter2", 0o604):                        "open to others than its owner (mode 0604): chmod 600 ",
		write(t, "writable", "hunter2", 0o620):                     "open to others than its owner (mode 0620): chmod 600 ",
		write(t, "empty", "\n", 0o600):                             "is empty: write the secret into it",
		write(t, "lines", "hunter2\nx\n", 0o600):                   "has more than one line",
		write(t, "large", strings.Repeat("x", maxSecret+1), 0o600): "is larger than 65536 bytes",
		filepath.Join(t.TempDir(), "absent"):                       "no such file",
		t.TempDir():                                                "it is not a plain file",
		pipe:                                                       "it is not a plain file",
	} {
		in := input{env: []string{"HONGBAO_REDIS_PASSWORD_FILE=" + path}}
		got := in.problems(t)
		require.Len(t, got, 1)
		require.Contains(t, got[0], "environment HONGBAO_REDIS_PASSWORD_FILE: redis.password: ")
		require.Contains(t, got[0], want)
		require.NotContains(t, got[0], "hunter2")
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "absent"): "no such file or directory; `hongbao dev` removes the file of its deployment when it ends",
		os.TempDir():                         "it is not a plain file",
		write(t, "large", strings.Repeat("#", maxFile+1), 0o600): "is larger than 1048576 bytes",
	} {
		_, err := Load(path, nil, nil)
		require.ErrorContains(t, err, "the configuration file can't be read: ")
		require.ErrorContains(t, err, want)
	}
}

func TestProblemsStayOnTheirLine(t *testing.T) {
	t.Parallel()
	in := input{yaml: "\"a\\n{\\\"level\\\":\\\"error\\\"}\\e[31m\": 1\n"}
	require.Equal(t, []string{`hongbao.yaml:1: a\n{"level":"error"}\x1b[31m: there is no such key`}, in.problems(t))
}
