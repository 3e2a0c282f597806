package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// golden compares each text with the file of its name in a folder of testdata. With the flag -update, which webtest
// defines, it writes the files instead.
func golden(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	dir := filepath.Join("testdata", folder)
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o750))
		for name, text := range texts {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		require.Contains(t, texts, f.Name(), "the file has no text any more: run the test with -update")
	}
	for name, text := range texts {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err, "run the test with -update")
		assert.Equal(t, string(want), text, "%s/%s: run the test with -update, and read the diff", folder, name)
	}
}

// The manual page of each command equals the file in testdata, so that review shows each change of a name, a flag or a
// help text.
func TestManualPagesAreCommitted(t *testing.T) {
	t.Parallel()
	dir, texts := t.TempDir(), map[string]string{}
	r := runProgram(t, []string{"SOURCE_DATE_EPOCH=1771358400"}, "man", dir)
	require.Zero(t, r.code, r.err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		texts[f.Name()] = string(text)
	}
	golden(t, "man", texts)
}

// goldenAnswers collects the --json answers of commands.
type goldenAnswers struct {
	*deployment
	texts map[string]string
	// names replaces texts that are specific to this run, such as addresses, by fixed words.
	names *strings.Replacer
}

// volatile are patterns of values that differ between two runs, with the words that replace them.
var volatile = []struct {
	is   *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?`), "DATE"},
	{regexp.MustCompile(`\b\d{13}-\d+\b`), "ENTRY"},
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "HASH"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b|\b[a-z2-7]{12}\b`), "ID"},
	{regexp.MustCompile(`^[A-Za-z0-9_-]{43}$|\bhb_\w+`), "SECRET"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`(\d+h)?(\d+m)?\d+(\.\d+)?(µs|us|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\bcli:\S+@\S+`), "cli:USER@HOST"},
}

// measured matches the names of fields whose numbers depend on the clock, the machine or the draw.
var measured = regexp.MustCompile(`(^|_)(ms|at|age|oldest|seconds|ago|took|bytes|packet|offset|epoch)$`)

// add runs a command with --json, and keeps its output under the command's name plus the suffix special.
func (a *goldenAnswers) add(code int, special string, args ...string) string {
	a.t.Helper()
	r := a.run(append(slices.Clone(args), "--json")...)
	require.Equal(a.t, code, r.code, "%v: %s%s", args, r.out, r.err)
	command, _, err := root().Find(args)
	require.NoError(a.t, err)
	name := strings.ReplaceAll(strings.TrimPrefix(command.CommandPath(), "hongbao "), " ", "-")
	a.keep(name+special, r.out)
	return r.out
}

func (a *goldenAnswers) keep(name, out string) {
	a.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.UseNumber()
	var doc any
	require.NoError(a.t, decoder.Decode(&doc), out)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(a.t, encoder.Encode(a.masked("", doc)))
	require.NotContains(a.t, a.texts, name+".json")
	a.texts[name+".json"] = text.String()
}

// masked replaces the values that differ between two runs.
func (a *goldenAnswers) masked(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = a.masked(name, v[name])
		}
	case []any:
		for i := range v {
			v[i] = a.masked(field, v[i])
		}
	case string:
		text := a.names.Replace(v)
		for _, m := range volatile {
			text = m.is.ReplaceAllString(text, m.word)
		}
		return text
	case json.Number:
		if n, err := v.Int64(); (err != nil || n != 0) && measured.MatchString(field) {
			return "NUMBER"
		}
	}
	return v
}

// noGolden are the commands without a golden answer: they print no JSON document, print one that depends on the
// machine, or run until they are stopped.
var noGolden = []string{"serve", "control", "work", "balance", "tail", "campaign watch", "demo", "dev", "doctor", "health", "man", "local-sweep", "config check"}

// The --json answer of each command equals the file in testdata, except for times, ids and the like. So a review shows
// each change of a field.
func TestAnswersAreCommitted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{kafka: true, redis: testkit.NewRedis(t, testkit.RedisOptions{}), uninitialized: true})
	dir := t.TempDir()
	a := &goldenAnswers{d, map[string]string{}, strings.NewReplacer(d.topic, "TOPIC", d.prefix, "DEPLOYMENT", dir, "FOLDER")}
	a.keep("version", versionless(t, d.ok("version", "--json")))
	a.add(0, "", "init")
	a.before()
	a.campaigns()
	a.decisions(dir)
	a.end(dir)
	a.loss()
	a.balance(dir)
	a.remote()
	golden(t, "json", a.texts)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "hongbao ")
		if cmd.Runnable() && !cmd.HasSubCommands() && !slices.Contains(noGolden, name) {
			require.Contains(t, a.texts, strings.ReplaceAll(name, " ", "-")+".json", "the command has no golden answer")
		}
	}
	walk(root())
}

// versionless returns the answer of `hongbao version` without the fields that the build sets.
func versionless(t *testing.T, out string) string {
	t.Helper()
	doc := decided[map[string]any](t, out)
	for _, field := range []string{"version", "revision", "go", "time", "modified"} {
		if _, ok := doc[field]; ok {
			doc[field] = "BUILD"
		}
	}
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	return string(text)
}

// before collects answers before a campaign is loaded.
func (a *goldenAnswers) before() {
	rain := spec(a.t, "rain", 10, 1000, "mode: random, min: 1, max: 1000", "mode: even")
	a.add(0, "", "campaign", "plan", rain)
	a.add(0, "", "campaign", "create", rain)
	a.add(0, "", "campaign", "list")
	a.ok("campaign", "create", spec(a.t, "mistake", 10, 1000))
	a.add(0, "", "campaign", "cancel", "mistake")
	a.add(0, "", "campaign", "load", "rain")
}

func (a *goldenAnswers) campaigns() {
	by := []string{"--by", "ann", "--why", "test"}
	a.add(0, "", "grab", "rain", "u1", "--request-id", "r1")
	a.ok("grab", "rain", "u2", "--request-id", "r")
	a.ok("grab", "rain", "u3", "--request-id", "r")
	a.add(0, "", "receipts", "rain", "u1")
	a.add(0, "", "why", "rain", "u1")
	a.add(0, "-without-a-grant", "why", "rain", "u9")
	a.add(0, "", "campaign", "pause", "rain", "--by", "ann", "--why", "test")
	a.add(0, "-of-a-paused-campaign", "grab", "rain", "u9", "--request-id", "r9")
	a.add(0, "", "campaign", "resume", "rain", "--by", "ann", "--why", "test")
	a.add(0, "", "campaign", "top-up", "rain", "--packets", "5", "--total", "500", "--expect", "1000", "--id", "more", "--by",
		"ann", "--why", "test")
	a.buried(configs.SinkBalance)
	letters := decided[listed](a.t, a.add(0, "", "dead", "list")).Letters
	a.add(0, "", "dead", "show", letters[0].ID)
	a.add(0, "", append([]string{"dead", "drop", letters[0].ID}, by...)...)
	a.add(0, "", append([]string{"dead", "requeue", letters[1].ID, letters[2].ID}, by...)...)
	a.add(0, "", "replay", "again", "--to", "balance")
	a.buried(configs.SinkKafka)
	a.claimed(time.Now().Add(-25*time.Hour), time.Now().Add(-time.Hour))
	a.add(0, "", "claim", "list")
	a.add(0, "", append([]string{"claim", "settle", "kafka/0/w9.1", "--as", "unpublished"}, by...)...)
	a.ok(append([]string{"dead", "requeue", "--sink", "kafka", "--expect", "1"}, by...)...)
	for _, sink := range [][]string{{"sink", "pause", "kafka"}, {"sink", "limit", "kafka", "--rate", "5"}, {"sink", "resume", "kafka"}} {
		a.add(0, "", append(sink, by...)...)
	}
	_, err := a.store.Shard(0).Group("mail").Create(a.t.Context())
	require.NoError(a.t, err)
	a.add(0, "", append([]string{"sink", "remove", "mail", "--give-up", "50"}, by...)...)
	a.add(0, "", "sink", "list")
	a.add(0, "", "status")
	packet := a.withholds("rain", 1)[0]
	a.add(0, "", "hole", "list")
	a.add(0, "", append([]string{"hole", "grant", "rain", "--packet", packet, "--user", "u7"}, by...)...)
	a.add(0, "", append([]string{"hole", "release", "rain"}, by...)...)
}

// decisions collects answers of decisions about quarantined grants and about a known difference. It uses its own
// deployment.
func (a *goldenAnswers) decisions(dir string) {
	d := setup(a.t, options{})
	d.campaign("snow", 10, 1000, "mode: random, min: 1, max: 1000", "mode: even")
	d.ok("grab", "snow", "u1", "--request-id", "r")
	w := d.start("work")
	d.quiet()
	for i := range 2 {
		d.plant("snow", grantEntry("snow", int64(1+i), "100", "thief")...)
	}
	d.quiet()
	at := &goldenAnswers{d, a.texts, strings.NewReplacer(d.prefix, "DEPLOYMENT")}
	waiting := decided[payments.QuarantinePage](a.t, at.add(0, "", "quarantine", "list")).Grants
	require.NotEmpty(a.t, waiting)
	id := fmt.Sprint(waiting[0].ID)
	at.add(0, "", "quarantine", "show", id)
	at.add(0, "", "quarantine", "resolve", id, "--void", "--by", "ann", "--why", "forged")
	at.add(0, "", "user", "show", "u1")
	at.add(0, "", "quarantine", "campaign", "nowhere", "--by", "ann", "--why", "forged")
	w.stop(syscall.SIGTERM)
	report := decided[model.AuditReport](a.t, at.add(3, "-that-differs", "audit"))
	at.add(3, "-that-differs", "audit", "last")
	file := filepath.Join(dir, "difference.json")
	text, err := json.Marshal(report.Differences[0])
	require.NoError(a.t, err)
	require.NoError(a.t, os.WriteFile(file, text, 0o600))
	at.add(0, "", "audit", "acknowledge", file, "--until", "1h", "--by", "ann", "--why", "known")
}

// end collects answers from the end of a campaign to its archive.
func (a *goldenAnswers) end(dir string) {
	shanghai, err := time.LoadLocation("Asia/Shanghai") // the campaign's time zone
	require.NoError(a.t, err)
	day := time.Now().In(shanghai).Format(time.DateOnly)
	a.add(0, "", "export", "--day", day, "--campaign", "rain", "--dir", dir, "--unfinished")
	w := a.start("work")
	w.says(`"working"`)
	a.quiet()
	a.add(0, "", "audit")
	a.add(0, "", "audit", "last")
	w.stop(syscall.SIGTERM) // so that no sink finishes the close before it is printed
	left := decided[campaigns.Ending](a.t, a.add(0, "", "campaign", "close", "rain", "--early")).Amount
	a.set("CAMPAIGN_GRACE", "0s")
	w = a.start("work")
	left += 100 // the packet of the dropped letter
	a.add(0, "", "campaign", "refund", "rain", "--wait", "30s", "--missing", "1", "--amount",
		strconv.FormatInt(int64(left), 10))
	disclosed := filepath.Join(dir, "disclosed.json")
	require.NoError(a.t, os.WriteFile(disclosed, []byte(a.add(0, "", "campaign", "reveal", "rain")), 0o600))
	a.add(0, "", "campaign", "verify", disclosed)
	a.add(0, "", "campaign", "show", "rain")
	w.stop(syscall.SIGTERM)
	w = a.start("work") // CAMPAIGN_GRACE is 0: this worker removes the campaign from Redis
	testkit.Eventually(a.t, 30*time.Second, func() bool {
		return a.rdb.Exists(a.t.Context(), a.store.Home("rain").Keys.Campaign("rain")).Val() == 0
	}, "the campaign leaves Redis")
	w.Kill()
	a.add(0, "-with-a-seal", "audit", "--seal", "--wait", "30s")
	a.add(0, "", "archive", "rain", "--dir", dir)
	a.add(0, "-delete", "archive", "rain", "--dir", dir, "--delete")
	key := decided[apikeys.NewKey](a.t, a.add(0, "", "key", "create", "--role", "viewer"))
	a.add(0, "", "key", "list")
	a.add(0, "", "key", "rotate", key.ID)
	a.add(0, "", "key", "revoke", key.ID)
	a.add(0, "", "journal")
}

// loss collects answers after Redis has lost everything.
func (a *goldenAnswers) loss() {
	a.campaign("snow", 10, 1000, "mode: random, min: 1, max: 1000", "mode: even")
	a.ok("grab", "snow", "u1", "--request-id", "r")
	require.NoError(a.t, a.rdb.FlushAll(a.t.Context()).Err())
	a.add(3, "", "recover")
	found := acceptance.FindStringSubmatch(a.run("recover").out)
	require.NotEmpty(a.t, found)
	by := []string{"--by", "ann", "--why", "test"}
	a.add(0, "-accepted", slices.Concat([]string{"recover", "--accept-loss"}, by, strings.Fields(found[1]+" "+found[2]))...)
	lost := decided[campaigns.LostEnding](a.t, a.add(2, "", "campaign", "refund-lost", "snow"))
	a.add(0, "-done", slices.Concat([]string{"campaign", "refund-lost", "snow", "--amount", fmt.Sprint(int64(lost.LeftAmount)),
		"--expect", lost.Digest}, by)...)
}

// balance collects answers about the database of a balance server.
func (a *goldenAnswers) balance(dir string) {
	dsn := filepath.Join(dir, "balance.db")
	bank := &goldenAnswers{&deployment{t: a.t, env: []string{"HONGBAO_LEDGER_DSN=" + dsn}, times: 1}, a.texts, a.names}
	bank.add(0, "", "balance", "migrate")
	bank.add(0, "-of-a-client", "key", "create", "--role", "client", "--client", "shop")
	bank.add(0, "", "balance", "fund", "shop", "--amount=500", "--currency=CNY", "--id=b1", "--by=ann", "--why=test")
	bank.add(0, "", "balance", "funds")
	bank.add(0, "", "balance", "check")
}

// remote collects the answer of a confirmation: a person confirms a credit in doubt at a remote balance system.
func (a *goldenAnswers) remote() {
	d := setup(a.t, options{})
	d.campaign("rain", 1, 100)
	b := newBlindBank(a.t)
	b.sick = func(string) bool { return true }
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", b.URL, "REMOTE_RETENTION", "0s", "REMOTE_QUERYABLE", "false",
		"REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s", "REMOTE_HEADER_TIMEOUT", "900ms")
	d.winners(a.t, "rain", 1)
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	letters := decided[listed](a.t, d.ok("dead", "list", "--json")).Letters
	require.Len(a.t, letters, 1)
	at := &goldenAnswers{d, a.texts, strings.NewReplacer(d.prefix, "DEPLOYMENT", b.URL, "REMOTE")}
	at.add(0, "", "dead", "confirm", letters[0].ID, "--booked", "--by", "ann", "--why", "ticket 4711")
}
