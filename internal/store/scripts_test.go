package store_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (c *scriptCase) setup(t *testing.T, b *bundle) {
	if c.prep != nil {
		c.prep(t, b)
	}
}

// Each script is called with a key of the wrong type at each of its KEYS. It fails and changes nothing. With correct
// keys the same call writes.
func TestScriptsOnWrongTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range scriptCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := setupOn(t, b.rdb)
			c.setup(t, good)
			before := good.dump(t)
			require.NoError(t, c.call(t.Context(), good))
			if name != "renew" && name != "receipts" && name != "winners" && name != "touch" { // these change nothing
				require.NotEmpty(t, differ(before, good.dump(t)), "the case must write, to detect partial writes")
			}
			for i := range c.keys(good) {
				b := setupOn(t, b.rdb)
				c.setup(t, b)
				key := c.keys(b)[i]
				kind, err := b.rdb.Type(t.Context(), key).Result()
				require.NoError(t, err)
				require.NoError(t, b.rdb.Del(t.Context(), key).Err())
				if kind == "hash" || kind == "stream" || kind == "list" {
					require.NoError(t, b.rdb.Set(t.Context(), key, "planted", 0).Err())
				} else {
					require.NoError(t, b.rdb.SAdd(t.Context(), key, "planted").Err())
				}
				before := b.dump(t)
				err = c.call(t.Context(), b)
				require.Error(t, err, "KEYS[%d] %s", i+1, key)
				require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "KEYS[%d] %s: %v", i+1, key, err)
				require.Empty(t, differ(before, b.dump(t)), "KEYS[%d] %s", i+1, key)
			}
		})
	}
}

// Redis is out of memory. Scripts that need memory are refused and change nothing. Scripts that finish work still
// run, so that memory becomes free again.
func TestScriptsOutOfMemory(t *testing.T) {
	t.Parallel()
	rdb := testkit.NewRedis(t, testkit.RedisOptions{}).Client(t)
	refused := 0
	for name, c := range scriptCases() { // not in parallel: maxmemory affects the whole server
		b := setupOn(t, rdb)
		c.setup(t, b)
		before := b.dump(t)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		err := c.call(t.Context(), b)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		if !c.grows {
			require.NoError(t, err, name)
			continue
		}
		refused++
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%s: %v", name, err)
		require.True(t, hongbao.IsOutage(err), name)
		require.Empty(t, differ(before, b.dump(t)), name)
		require.NoError(t, c.call(t.Context(), b), name)
		require.NotEmpty(t, differ(before, b.dump(t)), name)
	}
	t.Logf("out of memory refused %d scripts", refused)
}

// A cluster refuses a script with keys in several slots (F10). It accepts every script of this package.
func TestScriptsOnACluster(t *testing.T) {
	t.Parallel()
	// one node has all slots, so a plain client suffices
	rdb := testkit.NewRedis(t, testkit.RedisOptions{Cluster: true}).Client(t)
	require.NoError(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 1<<14-1).Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		info, err := rdb.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, "the cluster is up")
	two := storetest.InitializedOn(t, rdb, 2)
	err := rdb.Eval(t.Context(), "return redis.call('EXISTS', KEYS[1], KEYS[2])",
		[]string{two.Shard(0).Keys.Meta(), two.Shard(1).Keys.Meta()}).Err()
	require.True(t, redis.HasErrorPrefix(err, "CROSSSLOT"), "%v", err)
	for name, c := range scriptCases() {
		t.Run(name, func(t *testing.T) {
			b := setupOn(t, rdb)
			c.setup(t, b)
			require.NoError(t, c.call(t.Context(), b))
		})
	}
}

// Each script is called twice. The second call changes nothing, except for scripts that are listed as changing.
func TestScriptsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fenced := map[string]bool{"complete": true, "release": true}
	// A repeat of these scripts writes; they have tests of their own.
	changes := map[string]bool{"claim": true, "once": true, "reclaim": true, "trim": true, "remove_idle_consumers": true,
		"renew": true, "rate": true, "sink": true, "witness": true, "testify": true, "answers": true}
	for name, c := range scriptCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.rdb)
			c.setup(t, b)
			require.NoError(t, c.call(t.Context(), b))
			after := b.dump(t)
			err := c.call(t.Context(), b)
			if fenced[name] {
				require.ErrorIs(t, err, stream.ErrFenced)
			} else {
				require.NoError(t, err)
			}
			if !changes[name] {
				require.Empty(t, differ(after, b.dump(t)))
			}
		})
	}
}

var (
	sections = []string{"KEYS", "ARGV", "Reply", "Cost", "First write", "Repeat"}
	callKey  = regexp.MustCompile(`redis\.p?call\(\s*'([A-Z]+)'\s*,\s*([^,)\s]+(?:\s*,\s*[^,)\s]+)?)`)
)

// included lists the files that other scripts include, with the names of the functions' parameters that are keys.
var included = map[string][]string{"bits": {"bitmap", "campaign"}, "control": {"hash", "waiting"}, "fields": {"hash"}, "guard": nil,
	"left": {"stock", "sums"}, "marks": {"sums"}, "parking": nil, "seen": nil, "stub": {"campaign"},
	"withheld": {"campaign", "list"}}

// Every script has a complete head, a case in scriptCases, and accesses keys only by KEYS[i].
func TestScriptSources(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../lua/*.lua")
	require.NoError(t, err)
	cases := scriptCases()
	require.Len(t, files, len(cases)+len(included), "each script has a case")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		file = filepath.Base(file)
		name := strings.TrimSuffix(file, ".lua")
		head, body, ok := strings.Cut(string(text), "\n\n")
		require.True(t, ok, file)
		require.True(t, strings.HasPrefix(head, "-- "+name+": "), file)
		checkKeys(t, file, body)
		if _, is := included[name]; is {
			continue
		}
		require.Contains(t, cases, name)
		at := 0
		for _, s := range sections {
			i := strings.Index(head, "\n-- "+s)
			require.Greater(t, i, at, "%s: %s is missing or out of order", file, s)
			at = i
		}
	}
}

func checkKeys(t *testing.T, file, body string) {
	t.Helper()
	require.NotContains(t, body, "pcall", file)
	require.NotContains(t, body, "cjson.decode", file) // it loses digits of numbers from 10^14 on
	require.NotContains(t, body, "math.random", file)
	require.Equal(t, strings.Count(body, "redis.call("), len(callKey.FindAllString(body, -1))+
		strings.Count(body, "redis.call('TIME')"), file)
	for _, m := range callKey.FindAllStringSubmatch(body, -1) {
		command, args := m[1], strings.Split(m[2], ",")
		key := strings.TrimSpace(args[0])
		if command == "XINFO" || command == "XGROUP" {
			require.Len(t, args, 2, "%s: %s", file, m[0])
			key = strings.TrimSpace(args[1])
		}
		if command == "XREADGROUP" {
			_, key, _ = strings.Cut(body, "'STREAMS', ")
		}
		// Functions of included files have the key as a parameter. Their callers are checked below.
		ok := strings.HasPrefix(key, "KEYS[") || slices.Contains(included[strings.TrimSuffix(file, ".lua")], key)
		require.True(t, ok, "%s: %s has the key %s, want KEYS[i]", file, m[0], key)
	}
	for _, line := range strings.Split(body, "\n") {
		if strings.Contains(line, "set_bits(") || strings.Contains(line, "finish(") || strings.Contains(line, "add_finished(") ||
			strings.Contains(line, "bits_set(") || strings.Contains(line, "whole(") ||
			strings.Contains(line, "stub(") || strings.Contains(line, "decide(") || strings.Contains(line, "left_of(") ||
			strings.Contains(line, "_withheld(") || strings.Contains(line, "withheld_of(") {
			_, own := included[strings.TrimSuffix(file, ".lua")]
			require.True(t, own || strings.Contains(line, "(KEYS["), "%s: %s", file, line)
		}
	}
}

// The script cache is flushed again and again during grabs. After NOSCRIPT the script is loaded again, and every grab
// is granted once.
func TestScriptCacheEmptied(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	b.load(t, spec("rain", 2000))
	ctx, stop := context.WithCancel(t.Context())
	flushes := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if b.rdb.ScriptFlush(ctx).Err() == nil {
				n++
			}
		}
		flushes <- n
	}()
	for i := range 1000 {
		b.grab(t, "rain", user(2*i), user(2*i+1))
	}
	stop()
	require.NotZero(t, <-flushes)
	entries, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Len(t, entries, 1000)
	require.EqualValues(t, 1999, entries[999].Seq)
}

func user(i int) string {
	return "u" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hongbao.Class{
		"OOM command not allowed": hongbao.ClassTransient, "LOADING Redis is loading": hongbao.ClassTransient,
		"BUSY Redis is busy": hongbao.ClassTransient, "READONLY You can't write": hongbao.ClassTransient,
		"NOREPLICAS Not enough": hongbao.ClassTransient, "MISCONF Errors writing": hongbao.ClassTransient,
		"CLUSTERDOWN": hongbao.ClassTransient, "TRYAGAIN": hongbao.ClassTransient, "MASTERDOWN": hongbao.ClassTransient,
		"UNBLOCKED the stream key no longer exists": hongbao.ClassTransient,
		"ERR max number of clients reached":         hongbao.ClassTransient,
		"NOGROUP No such key":                       hongbao.ClassTransient,
		"WRONGTYPE Operation against a key":         hongbao.ClassBroken,
		"ERR unknown command":                       hongbao.ClassBroken,
		"NOAUTH Authentication required":            hongbao.ClassBroken,
		"HBNOTREADY this shard":                     hongbao.ClassBroken,
	} {
		err := store.Classify(replyError(text))
		require.Equal(t, want, hongbao.ClassOf(err), text)
		require.Equal(t, want == hongbao.ClassTransient && !strings.HasPrefix(text, "NOGROUP"), hongbao.IsOutage(err), text)
	}
	require.NoError(t, store.Classify(nil))
	require.ErrorIs(t, store.Classify(redis.Nil), redis.Nil)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(store.Classify(context.DeadlineExceeded)))
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(store.Classify(redis.ErrPoolTimeout)))
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// A grab's reply is lost and the node vanishes. The cluster client retries, and the retry can't connect. The error is
// Unknown, because the first try granted the packet.
func TestClusterClientMayHaveCalledBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 2))
	proxy := testkit.NewProxy(t, b.rdb.Options().Addr)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{proxy.Addr}, MaxRedirects: 3, DialerRetries: 1, DisableIdentity: true, DisableRoutingPolicies: true,
		PoolSize:                 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: proxy.Addr}}}}, nil
		},
	})
	defer rdb.Close()
	k, first := b.store.Over(rdb).Shard(0), call("rain", "u0")
	answers, err := k.Place("rain").Grab(t.Context(), first, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
	gone := make(chan struct{})
	proxy.SwallowAnswers(1, func(request []byte) bool { // runs the call, drops its reply, and stops the node
		if !strings.Contains(string(request), "evalsha") {
			return false
		}
		go func() {
			_ = proxy.Close()
			close(gone)
		}()
		return true
	})
	second := call("rain", "u1")
	second.Terms = first.Terms // otherwise Grab would send a second call to get the terms
	_, err = k.Place("rain").Grab(t.Context(), second, nil)
	<-gone
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.True(t, hongbao.IsOutage(err))
	require.EqualValues(t, 2, b.rdb.HLen(t.Context(), b.k.Keys.Receipts("rain")).Val(), "it was carried out")
}

// The reply to a grab is lost. No kind of client sends the grab again by itself, whatever its number of retries. So the
// producer can count its tries.
func TestClientsSendAGrabOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"plain": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 5, DisableIdentity: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		},
		"cluster": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRedirects: 5, DisableIdentity: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
				}})
		},
	} {
		proxy := testkit.NewProxy(t, b.rdb.Options().Addr)
		rdb := client(proxy.Addr)
		k := b.store.Over(rdb).Shard(0)
		_, err := k.Place("rain").Grab(t.Context(), call("rain", "first-"+name), nil)
		require.NoError(t, err)
		proxy.SwallowAnswers(1_000, func(request []byte) bool { return strings.Contains(string(request), "evalsha") })
		_, err = k.Place("rain").Grab(t.Context(), call("rain", "u-"+name), nil)
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%s: %v", name, err)
		require.Equal(t, 1, proxy.Fired().Swallowed, name)
		require.NoError(t, rdb.Close())
	}
}
