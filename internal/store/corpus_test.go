package store_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

// TestCorpus makes the same calls on a simulation's Redis and on real servers: those of the tests in corpus. Each answer
// and each key at the end is the same on both.
func TestCorpus(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		real, simulated := onProgram(t, program), onSimulation(t)
		for name, run := range corpus() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				compare(t, &tapes{server: real}, &tapes{server: simulated}, run)
			})
		}
	})
}

// corpusTapes has the tapes of each subtest of TestCorpus, by its name.
var corpusTapes sync.Map

// corpusOf returns the tapes of a test that TestCorpus runs; nil for other tests.
func corpusOf(t testing.TB) *tapes {
	for name := t.Name(); strings.Contains(name, "/"); name = name[:strings.LastIndexByte(name, '/')] {
		if found, has := corpusTapes.Load(name); has {
			return found.(*tapes)
		}
	}
	return nil
}

// compare runs a test on two servers, and fails unless the tapes are equal.
func compare(t *testing.T, want, got *tapes, run func(t *testing.T)) {
	t.Helper()
	t.Cleanup(func() { // when both are over: they run in parallel
		if lines := want.lines(); !t.Failed() {
			assert.NotEmpty(t, lines)
			assert.Equal(t, lines, got.lines(), "a simulation's Redis differs from a real one: hook it in internal/simulation")
		}
	})
	for name, tapes := range map[string]*tapes{"real": want, "simulated": got} {
		t.Run(name, func(t *testing.T) {
			tapes.root = t.Name()
			corpusTapes.Store(t.Name(), tapes)
			run(t)
		})
	}
}

// Out of memory, the same scripts run, the others are refused, and each answer is the same.
func TestCorpusOutOfMemory(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		real, simulated := onProgram(t, program), onSimulation(t)
		for name, c := range scriptCases() {
			t.Run(name, func(t *testing.T) { // not in parallel: the whole server is out of memory
				compare(t, &tapes{server: real}, &tapes{server: simulated}, func(t *testing.T) {
					b := setup(t)
					c.setup(t, b)
					corpusOf(t).server.full(t, true)
					defer corpusOf(t).server.full(t, false)
					_ = c.call(t.Context(), b)
				})
			})
		}
	})
}

// corpusServer is a server of TestCorpus.
type corpusServer struct {
	options func() *redis.Options
	full    func(t *testing.T, full bool)
}

func onProgram(t *testing.T, program string) *corpusServer {
	t.Helper()
	// with everysec, a process waits for its registration once or more
	always := map[string]string{"appendfsync": "always"}
	server := testkit.NewRedis(t, testkit.RedisOptions{Binary: program, Args: always})
	return warm(t, &corpusServer{server.Options, func(t *testing.T, full bool) {
		t.Helper()
		server.Order(t, "CONFIG SET maxmemory "+map[bool]string{true: "1", false: "0"}[full])
	}})
}

func onSimulation(t *testing.T) *corpusServer {
	t.Helper()
	server, err := virtual.NewLoneRedis()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return warm(t, &corpusServer{func() *redis.Options {
		o := (&testkit.RedisServer{Addr: "redis:6379"}).Options()
		o.Dialer = server.Dial
		return o
	}, func(_ *testing.T, full bool) { server.SetFull(full) }})
}

// warm calls every script once, so that later calls do not depend on which scripts the server has.
func warm(t *testing.T, s *corpusServer) *corpusServer {
	t.Helper()
	rdb := redis.NewClient(s.options())
	defer rdb.Close()
	rdb.AddHook(&tape{}) // learns the names of the scripts
	for name, c := range scriptCases() {
		b := setupOn(t, rdb)
		c.setup(t, b)
		require.NoError(t, c.call(t.Context(), b), name)
	}
	return s
}

// tapes has the calls of one run of a test on a server.
type tapes struct {
	server *corpusServer
	root   string // the test's name

	mu  sync.Mutex
	all []*tape
}

// tape has the calls of one deployment, with their answers.
type tape struct {
	test string // which has made the deployment

	mu    sync.Mutex
	lines []string
}

// client returns a client for one deployment, whose calls are recorded.
func (s *tapes) client(t testing.TB) (*redis.Client, *tape) {
	t.Helper()
	o := s.server.options()
	o.Protocol = 2 // RESP3 has maps, where RESP2, and miniredis always, has arrays
	c, rdb := &tape{test: strings.TrimPrefix(t.Name(), s.root)}, redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
	return rdb, c
}

// watch records the deployment's keys at the end of the test.
func (s *tapes) watch(t testing.TB, st *store.Store, c *tape) {
	t.Cleanup(func() {
		rdb := redis.NewClient(s.server.options())
		defer rdb.Close()
		all := contents(t, rdb, st.Space().Prefix)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			c.lines = append(c.lines, plain(key+" = "+all[key]))
		}
	})
}

// lines returns the calls of all deployments, by the test that has made them.
func (s *tapes) lines() (lines []string) {
	slices.SortStableFunc(s.all, func(a, b *tape) int { return strings.Compare(a.test, b.test) })
	for _, c := range s.all {
		lines = append(append(lines, "test "+c.test), c.lines...)
	}
	return lines
}

// DialHook implements redis.Hook.
func (*tape) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *tape) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		learn(cmd)
		err := next(ctx, cmd)
		c.note(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *tape) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		learn(cmds...)
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			c.note(cmd, cmd.Err())
		}
		return err
	}
}

// unrecorded are the commands whose answers differ between servers, or from call to call.
var unrecorded = []string{"info", "hello", "client", "config", "ping", "keys", "time", "dump", "restore", "wait", "waitaof",
	"multi", "exec", "type", "pttl", "xinfo", "xpending", "script"}

// learn notes the names of scripts before another client may call them by their SHA-1.
func learn(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if args := cmd.Args(); cmd.Name() == "script" || cmd.Name() == "eval" {
			nameOf(fmt.Sprint(args[map[string]int{"eval": 1, "script": 2}[cmd.Name()]]))
		}
	}
}

// note records a call and its answer. It leaves out what depends on other clients: whether a server has a script.
func (c *tape) note(cmd redis.Cmder, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	args := cmd.Args()
	var line string
	switch name := cmd.Name(); {
	case slices.Contains(unrecorded, name) || redis.HasErrorPrefix(err, "NOSCRIPT"):
		return
	case name == "hmget" && args[2] == "seq": // by a client that does not know yet whether the server has the scripts
		return
	case name == "eval" || name == "evalsha":
		script, _ := cmd.(interface{ Val() any })
		if name = nameOf(fmt.Sprint(args[1])); name == "" { // such as store's question for the settings
			return
		}
		line = fmt.Sprintf("%s: %q", name, ageless(name, script.Val()))
	default:
		line = cmd.String()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		line, _, _ = strings.Cut(line, ": ")
		line += ": error " + textOf(err)
	}
	c.lines = append(c.lines, plain(line))
}

// ageless replaces the ages in a script's reply, and sorts the fields of a hash, which have no certain order.
func ageless(name string, reply any) any {
	list, is := reply.([]any)
	if !is {
		return reply
	}
	list = slices.Clone(list)
	switch name {
	case "freeze", "lock", "rate":
		if len(list) > 1 {
			list[1] = "an age"
		}
	case "reclaim":
		list[0] = list[0] != "0"
	case "sink":
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	case "trim":
		digits := regexp.MustCompile(`^[0-9]*$`)
		for at := len(list) - 4; at > 5 && !digits.MatchString(fmt.Sprint(list[at])); at -= 4 { // a group's name
			list[at+3] = "an age"
		}
	}
	return list
}

// scriptNames has the names of scripts, by the SHA-1 of their text.
var scriptNames sync.Map

// nameOf returns the name of a script with a text, or with the SHA-1 of a text that nameOf knows; else "".
func nameOf(text string) string {
	if name, has := scriptNames.Load(text); has {
		return name.(string)
	}
	sum := sha1.Sum([]byte(text))
	for name := range scriptCases() {
		if strings.HasSuffix(text, lua.Source(name)) {
			scriptNames.Store(hex.EncodeToString(sum[:]), name)
			return name
		}
	}
	return ""
}

// textOf returns what programs see of an error: its code, and the text of the project's own errors.
func textOf(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err.Error()
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	code, _, _ := strings.Cut(text, " ")
	if strings.HasPrefix(code, "user_script:") { // the line, which is another one without flags
		return "user_script"
	}
	if !strings.HasPrefix(code, "HB") {
		return code
	}
	text, _, _ = strings.Cut(text, " script: ")
	return text
}

var varying = []struct {
	is *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`\bt[0-9a-z]*-[^:]*:(\{[^}]*\})`), "$1"}, // the prefix of keys
	{regexp.MustCompile(`[0-9a-f]{32,}`), "H"},                   // hashes, and the run ids of servers
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "R"},                // rand.Text
	{regexp.MustCompile(`\b([dh])[0-9]{5,6}\b`), "$1"},           // a day's or an hour's counters
	{regexp.MustCompile(`20[0-9-]{8}T[0-9:.]+(Z|\+[0-9:]+)`), "T"},
	{regexp.MustCompile(`[0-9]{7,}(-[0-9]+)?`), "T"}, // times, and ids of entries
}

// plain removes from a line what differs from run to run.
func plain(line string) string {
	for _, v := range varying {
		line = v.is.ReplaceAllString(line, v.as)
	}
	return line
}

// contents returns the keys of a deployment with their values.
func contents(t testing.TB, rdb *redis.Client, prefix string) map[string]string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	keys, err := rdb.Keys(ctx, prefix+":*").Result()
	require.NoError(t, err)
	slices.Sort(keys)
	out := map[string]string{}
	for _, key := range keys {
		kind := rdb.Type(ctx, key).Val()
		text := ""
		switch kind {
		case "hash":
			text = fmt.Sprint(rdb.HGetAll(ctx, key).Val())
		case "list":
			text = fmt.Sprint(rdb.LRange(ctx, key, 0, -1).Val())
		case "zset":
			text = fmt.Sprint(rdb.ZRange(ctx, key, 0, -1).Val())
		case "string":
			text = fmt.Sprintf("%x", rdb.Get(ctx, key).Val())
		case "set":
			text = fmt.Sprint(rdb.SMembers(ctx, key).Val())
		case "stream":
			text = streamText(ctx, rdb, key)
		}
		out[key] = fmt.Sprintf("%s, ends %t: %s", kind, rdb.PTTL(ctx, key).Val() > 0, text)
	}
	return out
}

// streamText returns the entries of a stream, and what its groups have pending.
func streamText(ctx context.Context, rdb *redis.Client, key string) string {
	text := fmt.Sprintln(rdb.XRange(ctx, key, "-", "+").Val())
	for _, g := range rdb.XInfoGroups(ctx, key).Val() {
		text += fmt.Sprintln("group", g.Name, g.Pending, g.LastDeliveredID)
		for _, c := range rdb.XInfoConsumers(ctx, key, g.Name).Val() {
			text += fmt.Sprintln("consumer", c.Name, c.Pending)
		}
		for _, p := range rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: g.Name, Start: "-", End: "+",
			Count: 1e6}).Val() {
			text += fmt.Sprintln("pending", p.ID, p.Consumer, p.RetryCount)
		}
	}
	return text
}
