package configs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/producer"
)

func ExampleLoad() {
	flags := pflag.NewFlagSet("hongbao", pflag.ContinueOnError)
	AddFlags(flags)
	_ = flags.Parse([]string{"--consumer.lease=10s"}) // no error: AddFlags has defined the flag
	env := []string{"HONGBAO_CONSUMER_LEASE=20s", "HONGBAO_REDIS_PASSWORD=hunter2"}
	c, err := Load("../../configs/production.yaml", env, flags)
	fmt.Println(c, err)

	_ = flags.Set("consumer.lease", "1m")
	c, err = Load("../../configs/production.yaml", append(env, "HONGBAO_KAFKA_SASL_PASSWORD=hunter3"), flags)
	fmt.Println(c.Consumer.Lease, c.Deployment.Shards, c.Redis.Password, err)
	// Output:
	// <nil> the configuration is refused, problems: 2
	//   default: kafka.sasl_password: it is empty, but kafka.sasl_mechanism is scram-sha-512: set HONGBAO_KAFKA_SASL_PASSWORD or HONGBAO_KAFKA_SASL_PASSWORD_FILE
	//   default: publisher.max_claim_age: it is 20s, want it below consumer.lease, which is 10s (flag --consumer.lease): two workers could send under one claim
	// 1m0s 16 *** <nil>
}

// values returns the configuration without its sources, to compare.
func values(c *Config) Config {
	out := *c
	out.settings = nil
	return out
}

func TestDefaultsAreTheStages(t *testing.T) {
	t.Parallel()
	c := (&input{}).must(t)
	require.Equal(t, producer.DefaultConfig(), c.Producer)
	want := consumer.DefaultConfig()
	want.Group = SinkKafka
	require.Equal(t, want, c.ConsumerConfig(SinkKafka))
	trimmer := consumer.DefaultTrimmerConfig()
	trimmer.Groups = []string{SinkBalance, SinkKafka}
	require.Equal(t, trimmer, c.TrimmerConfig())
	books := ledger.DefaultConfig()
	books.Database = c.LedgerConfig().Database
	require.Equal(t, books, c.LedgerConfig())
}

func TestExampleFileHasEveryDefault(t *testing.T) {
	t.Parallel()
	defaults := (&input{}).must(t)
	c, err := Load("../../configs/hongbao.yaml", nil, nil)
	require.NoError(t, err)
	require.Equal(t, values(defaults), values(c))
	for _, s := range c.Settings() { // a webhook has none before it has a name
		k := find(s.Name)
		if k.Secret == "always" {
			require.Equal(t, Setting{Name: k.Name, Source: "default"}, s)
		} else if declared(k) {
			require.Equal(t, "default", s.Source)
		} else {
			require.Contains(t, s.Source, "hongbao.yaml:", s.Name)
		}
	}
}

func TestProductionFile(t *testing.T) {
	t.Parallel()
	env := []string{"HONGBAO_REDIS_PASSWORD=a", "HONGBAO_KAFKA_SASL_PASSWORD=b", "HONGBAO_LEDGER_DSN=postgres://u:c@h/d"}
	c, err := Load("../../configs/production.yaml", env, nil)
	require.NoError(t, err)
	require.Equal(t, 16, c.Deployment.Shards)
	require.Equal(t, "json", c.Log.Format)
	require.Equal(t, "postgres://u:c@h/d", c.Ledger.DSN.Reveal())
	require.Equal(t, "SCRAM-SHA-512", c.PublisherConfig().SASL.Name())
}

// samples returns two valid values for a knob.
func samples(k *entry) [2]string {
	switch {
	case k.Name == "deployment.key_prefix" || k.Name == "deployment.id" || k.Name == "kafka.topic" ||
		k.Name == "kafka.client_id":
		return [2]string{"one", "two"}
	case k.Form == "url":
		return [2]string{"http://one", "https://two/api"}
	case k.Form == "sink":
		return [2]string{"one", "two"}
	case k.Form != "":
		return [2]string{"one:1", "two:2"}
	case k.Choices != nil:
		return [2]string{k.Choices[0], k.Choices[len(k.Choices)-1]}
	}
	switch k.Kind() {
	case "bool":
		return [2]string{"true", "false"}
	case "integer":
		return [2]string{fmt.Sprint(k.Low), fmt.Sprint(k.Low + 1)}
	case "duration":
		return [2]string{knob.Span(time.Duration(k.Low)), knob.Span(time.Duration(k.Low) + time.Millisecond)}
	}
	return [2]string{"one", "two"}
}

// For each knob, the value of the last source that sets it wins.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	for i := range knobs {
		k := &knobs[i]
		if k.sink != "" {
			k = k.named(starredSamples[k.Section()])
		}
		v := samples(k)
		inFile, inEnv, onLine := "", []string{k.Env() + "=" + v[1]}, []string{"--" + k.Name + "=" + v[0]}
		if k.Secret != "always" {
			inFile = yamlOf(k.Name, v[0])
		}
		steps := []struct {
			in           input
			value, where string
		}{
			{input{}, k.Default, "default"},
			{input{yaml: inFile}, v[0], "hongbao.yaml:2"},
			{input{yaml: inFile, env: inEnv}, v[1], "environment " + k.Env()},
			{input{yaml: inFile, env: inEnv, args: onLine}, v[0], "flag --" + k.Name},
			{input{yaml: inFile, env: []string{k.Env() + "="}}, v[0], "hongbao.yaml:2"},
		}
		for n, s := range steps {
			if k.Secret == "always" && n != 0 && n != 2 || k.sink != "" && (n == 0 || n == 3) {
				continue // a webhook has no flags, and it exists only if a knob is set
			}
			c, source := s.in.raw(t, k)
			want := &Config{}
			if s.value != "" {
				require.NoError(t, k.Set(k.of(want), s.value))
			}
			require.Equal(t, k.Text(k.of(want)), k.Text(k.of(c)), "%s, step %d", k.Name, n)
			require.Contains(t, source, s.where, "%s, step %d", k.Name, n)
		}
	}
}

// raw merges the sources without checking for contradictions, because a single value may contradict a default.
func (in *input) raw(t *testing.T, k *entry) (*Config, string) {
	t.Helper()
	l := newLoader()
	if in.yaml != "" {
		l.file(write(t, "hongbao.yaml", in.yaml, 0o644))
	}
	l.environment(in.env)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	require.NoError(t, flags.Parse(in.args))
	l.commandLine(flags)
	c := l.fill()
	require.Empty(t, l.p.found, k.Name)
	for _, s := range c.settings {
		if s.Name == k.Name {
			return c, s.Source
		}
	}
	t.Fatalf("%s is not among the settings", k.Name)
	return nil, ""
}

func TestListFlagsAddUp(t *testing.T) {
	t.Parallel()
	in := input{args: []string{"--kafka.brokers=a:1", "--kafka.brokers", "b:2, c:3", "--kafka.create_topic"}}
	c := in.must(t)
	require.Equal(t, []string{"a:1", "b:2", "c:3"}, c.Publisher.Brokers)
	require.True(t, c.Publisher.Create)
}

// Every knob has a unique name, a section, and a description that ends with a full stop.
func TestTable(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(knobs), 100)
	seen := map[string]bool{}
	for i := range knobs {
		k := &knobs[i]
		if k.sink != "" {
			require.Regexp(t, `^(webhook|own)\.\*\.[a-z0-9_]+$`, k.Name)
			require.Nil(t, find(k.Name), "the star is no name")
			k = k.named(starredSamples[k.Section()])
			require.Equal(t, k, find(k.Name))
			require.Equal(t, k, findEnv(k.Env()))
			require.Nil(t, findEnv(strings.ToLower(k.Env())))
		} else {
			require.Regexp(t, `^[a-z]+\.[a-z0-9_]+$`, k.Name)
			require.Same(t, k, find(k.Name))
			require.Same(t, k, findEnv(k.Env()))
		}
		require.False(t, seen[k.Name], k.Name)
		seen[k.Name] = true
		require.NotEqual(t, -1, sectionIndex(k.Section()), k.Name)
		require.True(t, strings.HasSuffix(k.doc, "."), k.Name)
		require.NotContains(t, k.doc, "|", k.Name)
		require.False(t, foreign(k.Env()), k.Env())
		require.NotEqual(t, k.Kind() == "integer" || k.Kind() == "duration", k.High == 0, k.Name)
	}
}

func TestSecretFromFile(t *testing.T) {
	t.Parallel()
	path := write(t, "secret", "hunter2 \n", 0o600)
	in := input{env: []string{"HONGBAO_REDIS_PASSWORD_FILE=" + path,
		"HONGBAO_LEDGER_DSN_FILE=" + write(t, "dsn", "/var/x.db", 0o400)}}
	c := in.must(t)
	require.Equal(t, "hunter2 ", c.Redis.Password.Reveal())
	require.Equal(t, "/var/x.db", c.Ledger.DSN.Reveal())
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	in := input{env: []string{"HONGBAO_REDIS_PASSWORD=hunter2", "HONGBAO_LEDGER_DSN=hunter2.db"}}
	c := in.must(t)
	encoded, err := json.Marshal([]any{c.Redis, c.Ledger, c.Remote, c.Balance, c.Kafka})
	require.NoError(t, err)
	for _, text := range []string{
		fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%s %q", c.Redis.Password, c.Redis.Password),
		string(encoded), fmt.Sprint(c.Settings()),
	} {
		require.NotContains(t, text, "hunter2")
	}
	require.Contains(t, string(encoded), `"***"`)
	require.Empty(t, Secret("").String())
}

func TestKubernetesVariablesAreNotOurs(t *testing.T) {
	t.Parallel()
	in := input{env: []string{
		"HONGBAO_SERVICE_HOST=10.0.0.1", "HONGBAO_SERVICE_PORT_HTTP=80", "HONGBAO_PORT=tcp://10.0.0.1:80",
		"HONGBAO_PORT_80_TCP_ADDR=10.0.0.1",
		"HONGBAO_API_SERVICE_HOST=10.0.0.2", "HONGBAO_CONFIG=/etc/hongbao.yaml", "OTHER=1", "HONGBAO_NO_EQUALS_SIGN",
	}}
	require.Equal(t, values((&input{}).must(t)), values(in.must(t)))
}

func TestEmptyFilesAreFine(t *testing.T) {
	t.Parallel()
	want := values((&input{}).must(t))
	for _, text := range []string{"\n", "# nothing\n", "---\n", "redis:\n", "redis:\n  # addrs: [a:1]\nlog: {}\n", "~\n"} {
		require.Equal(t, want, values((&input{yaml: text}).must(t)), "%q", text)
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"hongbao.yaml", "production.yaml"} {
		data, err := os.ReadFile("../../configs/" + name)
		require.NoError(f, err)
		f.Add(string(data))
	}
	for _, text := range []string{"", "a: [", "redis: {db: 5}\n---\n", "&a redis: *a", "redis: !!map {tls: yes}",
		"? [1]\n: 2", "redis.db: 1\nredis:\n  db: 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := newLoader()
		(&yamlFile{loader: l, path: "f", lines: map[string]int{}}).read([]byte(text))
		c := l.fill()
		l.check(c)
		for _, p := range l.p.found {
			if strings.ContainsAny(p.String(), "\n\r\x00\x1b") {
				t.Errorf("a problem has more than one line: %q", p.String())
			}
		}
		if len(l.p.found) == 0 && (c.Deployment.Shards < 1 || c.Consumer.Lease < 100*time.Millisecond) {
			t.Errorf("accepted, but out of bounds: %+v", c)
		}
	})
}
