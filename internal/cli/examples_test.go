package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// examples collects the example lines of each command's help, by the command's path.
func examples(t *testing.T, cmd *cobra.Command, all map[string][]string) map[string][]string {
	t.Helper()
	for _, c := range cmd.Commands() {
		examples(t, c, all)
	}
	if cmd.HasSubCommands() && cmd.Example == "" || cmd.Hidden {
		return all
	}
	require.NotEmpty(t, cmd.Example, "%s has no example", cmd.CommandPath())
	for line := range strings.Lines(cmd.Example) {
		line = strings.TrimSpace(line)
		require.Contains(t, line, cmd.CommandPath(), "an example of %s runs another command", cmd.CommandPath())
		all[cmd.CommandPath()] = append(all[cmd.CommandPath()], line)
	}
	return all
}

// exampleEnv is a deployment and a folder in which the examples are run.
type exampleEnv struct {
	*deployment
	dir    string
	words  map[string]string // texts of the examples, and what replaces them in this run
	used   map[string]bool
	json   bool // run each example with --json
	worker *program
	// trusted is the environment without the remote that can't be queried.
	trusted []string
	// savedEnv keeps the environment while a command runs without it.
	savedEnv []string
}

// exampleSpec has what the test needs to run the examples of one command, in their order.
type exampleSpec struct {
	command string
	// before prepares what the examples need.
	before func(s *exampleEnv)
	// codes are the exit codes of the examples, in their order. A missing code is 0.
	codes []int
	// until is the text that the example of a long-running command prints once it is ready.
	until string
	// says is a part of the last example's output, without --json.
	says string
	// after checks the output of the last example, which is text or JSON.
	after func(s *exampleEnv, r result)
}

var exampleSpecs = []exampleSpec{
	{command: "init", says: "founded before"},
	{command: "recover", codes: []int{0, 2}},
	{command: "version"},
	{command: "man", says: "manual pages written to man1"},
	{command: "demo"},
	{command: "dev", until: "hb_", before: func(s *exampleEnv) {
		s.words["hongbao dev"], s.words["127.0.0.1:9000"] = "hongbao dev --listen 127.0.0.1:0", "127.0.0.1:0"
		s.savedEnv, s.env = s.env, nil // dev starts its own servers
	}, after: func(s *exampleEnv, _ result) { s.env = s.savedEnv }},
	{command: "config check"},
	{command: "campaign plan"},
	{command: "campaign create", after: func(s *exampleEnv, r result) {
		s.words["9f86d081..."] = regexp.MustCompile("[0-9a-f]{64}").FindString(r.out)
	}},
	{command: "campaign cancel", before: func(s *exampleEnv) { s.ok("campaign", "create", spec(s.t, "typo-rain", 10, 1000)) },
		says: "was refunded"},
	{command: "campaign list"},
	{command: "campaign load"},
	{command: "campaign show"},
	{command: "campaign watch", until: "granted"},
	{command: "grab", after: func(s *exampleEnv, r result) { require.Contains(s.t, r.out, `"outcome":"granted"`) }},
	{command: "receipts"},
	{command: "dead list", before: func(s *exampleEnv) { s.addDeadLetters("kafka") }},
	{command: "dead show"},
	{command: "dead requeue", says: "1 of 1 letter was requeued"},
	{command: "dead drop", says: "1 of 1 letter was dropped"},
	{command: "dead confirm", before: (*exampleEnv).doubt, says: "Credits sent again once: 1 of 1.",
		after: func(s *exampleEnv, _ result) {
			s.env = s.trusted
		}},
	{command: "claim list", before: (*exampleEnv).claim, says: "kafka/0/w1.5f0c.7"},
	{command: "claim settle", says: "kafka/0/w1.5f0c.7 is settled"},
	{command: "work", until: `"working"`},
	{command: "tail", until: `"user":"u1"`, before: func(s *exampleEnv) {
		worker := s.start("work")
		worker.says(`"working"`)
		s.quiet()
		worker.stop(syscall.SIGTERM)
	}},
	{command: "why", says: "announced"},
	{command: "audit", says: "agrees"},
	{command: "audit last", says: `"verdict":"agrees"`},
	{command: "audit acknowledge", says: "is acknowledged until", before: func(s *exampleEnv) {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "difference.json"),
			[]byte(`{"kind":"duplicate_in_topic","where":"topic","campaign":"spring-rain","packet":7,"detail":"a copy"}`), 0o600))
	}},
	{command: "status", says: `"sink":"kafka"`},
	{command: "sink pause", says: "balance is paused"},
	{command: "sink limit", says: "balance is limited to 500 grants a second"},
	{command: "sink list", says: "the bank is closed until 02:00"},
	{command: "doctor", says: `"redis"`},
	{command: "sink resume", says: "nothing was changed"}, // the second example resumes a campaign that runs
	{command: "sink remove", codes: []int{1, 0}, says: "1 shard", before: func(s *exampleEnv) { // crm has got none of the grants
		_, err := s.store.Shard(0).Group("crm").Create(s.t.Context())
		require.NoError(s.t, err)
	}},
	{command: "replay", says: "finished"},
	{command: "archive", before: (*exampleEnv).seal, after: func(s *exampleEnv, _ result) { s.env = s.savedEnv }},
	{command: "quarantine list", before: (*exampleEnv).forge},
	{command: "quarantine show"},
	{command: "quarantine resolve"},
	{command: "quarantine campaign"},
	{command: "campaign pause"},
	{command: "campaign resume"},
	{command: "hole list", before: func(s *exampleEnv) { s.words["--packet 4711"] = "--packet " + s.withholds("spring-rain", 2)[0] }},
	{command: "hole grant", says: "user u42 has packet"},
	{command: "hole release", says: "1 packet was released"},
	{command: "campaign top-up", codes: []int{2, 0}},
	{command: "campaign close", codes: []int{1, 0}, says: "was closed"}, // the first is too early
	{command: "campaign refund", before: (*exampleEnv).settle, codes: []int{2, 0}, says: "was refunded",
		after: func(s *exampleEnv, _ result) {
			s.worker.stop(syscall.SIGTERM)
		}},
	{command: "campaign refund-lost", says: "refunded "}, // the campaign has ended
	{command: "campaign reveal"},
	{command: "campaign verify"},
	{command: "export", before: (*exampleEnv).today, codes: []int{4, 0}, says: "spring-rain-"},
	{command: "balance migrate", says: "tables made", before: func(s *exampleEnv) { s.words["127.0.0.1:8090"] = testkit.FreeAddr(s.t) }},
	{command: "balance fund", says: "1,000,000.00 CNY left"},
	{command: "balance funds", says: "1,000,000.00 CNY"},
	{command: "balance", until: "serving balances"},
	{command: "balance check", says: "differences: 0"},
	{command: "serve", until: "serving grabs", before: func(s *exampleEnv) {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "keys.json"), []byte(keySet("k1")), 0o600))
		s.set("SERVE_LISTEN", testkit.FreeAddr(s.t), "SERVE_OPS_LISTEN", testkit.FreeAddr(s.t), "SERVE_DRAIN_DELAY", "0s")
	}},
	{command: "control", until: "serving the administration", before: func(s *exampleEnv) {
		s.set("CONTROL_LISTEN", testkit.FreeAddr(s.t), "CONTROL_OPS_LISTEN", testkit.FreeAddr(s.t))
	}},
	{command: "health", before: func(s *exampleEnv) {
		server := s.start("serve")
		server.says("serving grabs")
	}},
	{command: "key create", after: func(s *exampleEnv, r result) {
		s.words["5xk2q7vmaz3t"] = regexp.MustCompile("hb_([a-z2-7]{12})_[0-9a-f]{64}").FindStringSubmatch(r.out)[1]
	}},
	{command: "key list", says: `"role":"gateway"`},
	{command: "key rotate", says: "hb_"},
	{command: "key revoke", says: "is revoked"},
	{command: "user show", says: "u1"},
	{command: "journal", after: func(s *exampleEnv, _ result) {
		// The journal has the actions of the earlier examples.
		text := s.ok("journal", "--limit", "1000", "--json")
		for _, action := range []access.Action{access.CreateCampaign, access.LoadCampaign, access.PauseCampaign,
			access.ResumeCampaign, access.RequeueLetters, access.DropLetters, access.SettleClaim, access.ConfirmCredits, access.Replay,
			access.DecideQuarantine, access.DisownCampaign, access.CloseCampaign, access.Refund, access.RefundLost,
			access.RevealCampaign, access.CancelCampaign, access.AcknowledgeDifference, access.TopUpCampaign, access.ArchiveCampaign, access.PauseSink, access.ResumeSink, access.ManageKeys,
			access.GrantWithheld, access.ReleaseWithheld, access.ReadUser} {
			require.Contains(s.t, text, `"`+string(action)+`"`)
		}
		require.NotContains(s.t, text, "seed")
	}},
}

// furnish copies the program and the repository's examples into the folder. It moves the campaign's window to now, and
// removes from production.yaml the security settings that the test's servers don't have.
func (s *exampleEnv) furnish() {
	t := s.t
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(self, filepath.Join(s.dir, "bin", "hongbao")))
	require.NoError(t, os.CopyFS(filepath.Join(s.dir, "configs"), os.DirFS("../../configs")))
	now := time.Now().UTC().Truncate(time.Second)
	s.edit("configs/campaign.yaml", `(?m)^window: .*$`,
		fmt.Sprintf("window: {from: %s, to: %s}", now.Add(-time.Minute).Format(time.RFC3339),
			now.Add(time.Hour).Format(time.RFC3339)))
	s.edit("configs/production.yaml", `(?m)^  (tls|username|sasl_\w+): .*\n`, "")
	s.set("KAFKA_CREATE_TOPIC", "true", "KAFKA_REPLICATION_FACTOR", "1", "REDIS_MODE", "standalone")
}

// edit replaces the matches of the pattern, of which there must be at least one.
func (s *exampleEnv) edit(file, pattern, by string) {
	path := filepath.Join(s.dir, file)
	text, err := os.ReadFile(path)
	require.NoError(s.t, err)
	edited := regexp.MustCompile(pattern).ReplaceAllString(string(text), by)
	require.NotEqual(s.t, string(text), edited)
	require.NoError(s.t, os.WriteFile(path, []byte(edited), 0o600))
}

// addDeadLetters turns the first two grants into dead letters of a sink, under the ids that the examples use.
func (s *exampleEnv) addDeadLetters(sink string) {
	s.buried(sink)
	key := s.store.Shard(0).Keys.Dead(sink)
	letters, err := s.rdb.Do(s.t.Context(), "XRANGE", key, "-", "+").Slice() // Do keeps the order of the fields
	require.NoError(s.t, err)
	require.Len(s.t, letters, 2)
	require.NoError(s.t, s.rdb.Del(s.t.Context(), key).Err())
	for i, id := range []string{"1771358400000-0", "1771358400123-0"} {
		require.NoError(s.t, s.rdb.XAdd(s.t.Context(),
			&redis.XAddArgs{Stream: key, ID: id, Values: letters[i].([]any)[1]}).Err())
	}
}

// claim writes an open claim for an event that is already in the topic.
func (s *exampleEnv) claim() {
	require.NoError(s.t, s.rdb.HSet(s.t.Context(), s.store.Shard(0).Keys.Claims("kafka"), "w1.5f0c.7",
		"1 1 w1\n1-1\n1 77 0 0 0 1771358400000 0 "+s.topic+" 1-1@1771358400000-0..1771358400000-0").Err())
}

// doubt turns grants into dead letters of sink balance. The remote neither deduplicates requests nor can be queried.
func (s *exampleEnv) doubt() {
	s.addDeadLetters("balance")
	addr := testkit.FreeAddr(s.t)
	startBalance(s.t, addr, filepath.Join(s.t.TempDir(), "balance.db"))
	s.trusted = slices.Clone(s.env)
	s.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", "http://"+addr, "REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION",
		"0s", "REMOTE_QUERYABLE", "false",
		"REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s")
	asked := time.Now().Add(2 * time.Second) // an earlier inquiry does not count
	testkit.Eventually(s.t, 10*time.Second, func() bool { return time.Now().After(asked) }, "an inquiry counts")
	s.words["--asked 2026-02-17T21:30:00Z"] = "--asked " + asked.UTC().Format(time.RFC3339Nano)
}

// forge adds eight grants of a packet that belongs to another user. It voids six of them; the examples decide about the
// other two.
func (s *exampleEnv) forge() {
	r := s.show("spring-rain").Redis
	require.NotNil(s.t, r)
	receipts := decided[model.Receipts](s.t, s.ok("receipts", "spring-rain", "u1", "--json")).Receipts
	require.Len(s.t, receipts, 1)
	for i := range 8 {
		s.plant("spring-rain", grantEntry("spring-rain", receipts[0].Packet, fmt.Sprint(int64(receipts[0].Amount)),
			fmt.Sprintf("thief%d", i))...)
	}
	s.ok("replay", "forged", "--to", "balance", "--campaign", "spring-rain")
	for i := range 6 {
		s.ok("quarantine", "resolve", fmt.Sprint(i+1), "--void", "--by", "ann", "--why", "forged")
	}
}

// settle starts a worker that copies the close to the ledger, and puts the amount of the refund into the example.
func (s *exampleEnv) settle() {
	s.worker = s.start("work", "--sink", "balance")
	s.worker.says(`"working"`)
	sum := regexp.MustCompile(`--amount (\d+)`).FindStringSubmatch(s.run("campaign", "refund", "spring-rain").out)
	require.Len(s.t, sum, 2)
	s.words["--amount 250"] = "--amount " + sum[1]
}

// seal creates and seals two campaigns. They take the place of the campaigns in the examples of `hongbao archive`.
func (s *exampleEnv) seal() {
	s.savedEnv = slices.Clone(s.env)
	s.sealed("april-rain", 2)
	s.sealed("autumn-rain", 1)
	s.words["archive spring-rain"] = "archive april-rain"
	s.words["/srv/archive"] = s.t.TempDir()
}

// today puts the current day in place of the day in an example, because no money moved on that day.
func (s *exampleEnv) today() {
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(s.t, err)
	s.words["2026-02-18"] = time.Now().In(zone).Format(time.DateOnly)
	s.words["/srv/reports"] = s.t.TempDir()
}

// perform runs an example like a shell, and returns its result.
func (s *exampleEnv) perform(line string, a *exampleSpec) result {
	s.t.Helper()
	for word, means := range s.words {
		if strings.Contains(line, word) {
			line = strings.ReplaceAll(line, word, means)
			s.used[word] = true
		}
	}
	if s.json {
		command := "hongbao " + a.command
		line = strings.Replace(strings.Replace(line, command, command+" --json", 1), command+" --json spring-rain > ",
			command+" --json spring-rain | tee ", 1)
	}
	p := launch(s.t, s.dir, append(s.env, "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH")),
		exec.Command("bash", "-c", line))
	if a.until != "" && (a.command != "tail" || strings.Contains(line, "--follow")) {
		testkit.Eventually(s.t, 30*time.Second,
			func() bool { return strings.Contains(p.Out.String()+p.Err.String(), a.until) }, "%s says %q", line, a.until)
		p.Signal(syscall.SIGTERM)
	}
	return p.wait(90 * time.Second)
}

// Every example in every command's help runs and ends with the expected exit code.
func TestExamplesInHelpWork(t *testing.T) {
	t.Parallel()
	s := newExampleEnv(t)
	s.runExamples(func(a *exampleSpec, _ string, last bool, r result) {
		if last {
			require.Contains(t, r.out, a.says, a.command)
		}
	})
	for word := range s.words {
		require.True(t, s.used[word], "no example has %q any more", word)
	}
}

// With --json each example prints one document with names in snake_case. Commands that serve until they are stopped
// print none. `hongbao tail` prints one document for each event, and `hongbao campaign watch` for each change.
func TestEveryCommandPrintsOneDocument(t *testing.T) {
	t.Parallel()
	s := newExampleEnv(t)
	s.json = true
	printed := map[string]bool{}
	s.runExamples(func(a *exampleSpec, line string, _ bool, r result) {
		switch {
		case slices.Contains(noOutput, a.command):
			require.Empty(t, r.out, line)
		case a.command == "tail" || a.command == "campaign watch":
			for document := range strings.Lines(r.out) {
				oneDocument(t, line, document)
			}
		case r.out != "" || r.code == 0:
			oneDocument(t, line, r.out)
		}
		printed[a.command] = printed[a.command] || r.out != ""
	})
	for command, did := range printed {
		require.Equal(t, !slices.Contains(noOutput, command), did, command)
	}
}

// noOutput are the commands that print nothing on standard output.
var noOutput = []string{"work", "balance", "serve", "control"}

func newExampleEnv(t *testing.T) *exampleEnv {
	d := setup(t, options{kafka: true})
	s := &exampleEnv{deployment: d, dir: t.TempDir(), words: map[string]string{"10.0.0.7:6379": d.rdb.Options().Addr},
		used: map[string]bool{}}
	s.furnish()
	return s
}

// runExamples runs all examples. It calls check with the result of each, and with whether it is the last example of its
// command.
func (s *exampleEnv) runExamples(check func(a *exampleSpec, line string, last bool, r result)) {
	t := s.t
	all := examples(t, root(), map[string][]string{})
	for i := range exampleSpecs {
		a := &exampleSpecs[i]
		path := "hongbao " + a.command
		require.Contains(t, all, path, "the command does not exist, or exampleSpecs has it twice")
		if a.before != nil {
			a.before(s)
		}
		var r result
		for n, line := range all[path] {
			want := 0
			if n < len(a.codes) {
				want = a.codes[n]
			}
			r = s.perform(line, a)
			require.Equal(t, want, r.code, "$ %s\n%s%s", line, r.out, r.err)
			check(a, line, n == len(all[path])-1, r)
		}
		if a.after != nil {
			a.after(s, r)
		}
		delete(all, path)
	}
	require.Empty(t, all, "add these commands to exampleSpecs, so that their examples run")
}
