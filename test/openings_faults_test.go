package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// downFor returns a fault in which Redis loses the grants of its last second or so, and answers again when its last
// write is d ago.
func downFor(d time.Duration) func(l *losing) {
	return func(l *losing) {
		server := l.at.hand.servers[0]
		files, since := l.copyFiles(server), time.Now()
		l.ahead(server)
		last := l.dies(server)
		l.lasts(since, d, "Redis is down")
		l.replaces(server, files)
		l.lacks(last, server)
	}
}

// aged returns a fault in which Redis restarts from a file whose last write was d before the loss.
func aged(d time.Duration) func(l *losing) {
	return func(l *losing) {
		server := l.at.hand.servers[0]
		files := l.ages(l.copyFiles(server), d)
		l.ahead(server)
		last := l.dies(server)
		l.replaces(server, files)
		l.lacks(last, server)
	}
}

// ages makes a file older, in a server of its own: it moves the times that processes have left in Redis.
func (l *losing) ages(files string, by time.Duration) string {
	l.t.Helper()
	server := testkit.NewRedis(l.t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	require.NoError(l.t, server.Kill())
	l.replaces(server, files)
	client, ctx, keys := server.Client(l.t), l.t.Context(), l.store.Shard(0).Keys
	earlier := func(ms string) string {
		n, err := strconv.ParseInt(ms, 10, 64)
		require.NoError(l.t, err)
		return strconv.FormatInt(n-by.Milliseconds(), 10)
	}
	watched := client.HGet(ctx, keys.Meta(), "watched").Val()
	require.NoError(l.t, client.HSet(ctx, keys.Meta(), "watched", earlier(watched)).Err())
	lines := client.HGetAll(ctx, keys.Witnesses()).Val()
	require.NotEmpty(l.t, lines, "processes have registered")
	for process, line := range lines {
		at, rest, _ := strings.Cut(line, " ")
		require.NoError(l.t, client.HSet(ctx, keys.Witnesses(), process, earlier(at)+" "+rest).Err())
	}
	require.NoError(l.t, server.Kill())
	return l.copyFiles(server)
}

// keepsFile copies Redis' files before the first event.
func keepsFile(l *losing) { l.file = l.copyFiles(l.at.hand.servers[0]) }

// startsFromFile restarts Redis from the copy of keepsFile.
func startsFromFile(l *losing) {
	server := l.at.hand.servers[0]
	l.ahead(server)
	last := l.dies(server)
	l.replaces(server, l.file)
	l.lacks(last, server)
}

// quietRestarts lets users grab, and restarts Redis twice from one file that has everything. Nothing may be withheld.
func quietRestarts(l *losing) {
	server := l.at.hand.servers[0]
	p := l.goneProducer()
	c := &callers{people: l.people(p, l.id), first: 7_000_000}
	c.some(l.t.Context(), 200)
	l.near = append(l.near, c)
	l.allAgree()
	l.file = l.copyFiles(server)
	for range 2 {
		was := l.epochOf(0)
		require.NoError(l.t, server.Kill())
		l.replaces(server, l.file)
		testkit.Eventually(l.t, startTime, func() bool { l.epochs[0] = was; return l.isOpen(0) }, "the shard opens again")
		l.epochs[0] = l.epochOf(0)
		n, err := l.rdb.LLen(l.t.Context(), l.store.Shard(0).Keys.Withheld(l.id)).Result()
		require.NoError(l.t, err)
		require.Zero(l.t, n, "nothing was lost, so nothing is withheld")
	}
}

// withClock starts a Redis whose clock the test can set, by libfaketime.
func withClock(t *testing.T, _ hongbao.Durability) *redisAt {
	t.Helper()
	library, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	require.NoError(t, err)
	require.NotEmpty(t, library, "run scripts/setup.sh servers")
	redis, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	folder := t.TempDir()
	clock, program := filepath.Join(folder, "clock"), filepath.Join(folder, "redis-server")
	require.NoError(t, os.WriteFile(clock, []byte("+0\n"), 0o600))
	require.NoError(t, os.WriteFile(program, fmt.Appendf(nil, `#!/bin/sh
export LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1
exec %s "$@"
`, library[0], clock, redis), 0o700)) //nolint:gosec // a program
	at := redisByHand(t, 0, testkit.RedisOptions{Binary: program, Args: map[string]string{"appendfsync": "always"}})
	at.clock = clock
	return at
}

// setClock sets Redis' clock ahead, and waits until Redis has noticed.
func (l *losing) setClock(ahead time.Duration) {
	l.t.Helper()
	fresh := l.at.clock + ".new"
	require.NoError(l.t, os.WriteFile(fresh, fmt.Appendf(nil, "+%d\n", int64(ahead.Seconds())), 0o600))
	require.NoError(l.t, os.Rename(fresh, l.at.clock))
	testkit.Eventually(l.t, startTime, func() bool {
		now, err := l.rdb.Time(l.t.Context()).Result()
		return err == nil && time.Until(now.Add(-ahead)).Abs() < 2*time.Second
	}, "the fault fired: Redis' clock is ahead by %s", ahead)
}

// clockAhead returns what sets Redis' clock ahead before the rain.
func clockAhead(by time.Duration) func(l *losing) {
	return func(l *losing) { l.setClock(by) }
}

// clockRight returns a fault: Redis' clock is set right during the rain, and the sinks stand still. A new process
// registers and answers users. Then it dies, and Redis restarts from a file that is d old and lacks its last grants.
func clockRight(d time.Duration) func(l *losing) {
	return func(l *losing) {
		server := l.at.hand.servers[0]
		l.setClock(0)
		pauses("balance", "kafka")(l)
		p := l.goneProducer()
		fresh := &callers{people: l.people(p, l.id), first: 6_000_000, kill: p.kill}
		l.near = append(l.near, fresh)
		fresh.some(l.t.Context(), 20)
		l.pours("the rain continues")
		files, since := l.copyFiles(server), time.Now()
		fresh.some(l.t.Context(), 20)
		l.ahead(server)
		last := l.dies(server)
		fresh.kill()
		l.lasts(since, d, "Redis is down")
		l.replaces(server, files)
		l.lacks(last, server)
	}
}

// pauses returns what pauses sinks.
func pauses(sinks ...string) func(l *losing) {
	return func(l *losing) {
		for _, sink := range sinks {
			l.ok("sink", "pause", sink, "--by", "ann", "--why", "a test")
		}
		l.paused = sinks
	}
}

// resumes lets users grab while the sinks are paused, and then resumes these.
func resumes(l *losing) {
	if !l.person {
		l.pours("the rain continues")
	}
	for _, sink := range l.paused {
		l.ok("sink", "resume", sink, "--by", "ann", "--why", "a test")
	}
}

// killedWithFile restarts Redis from a file that lacks the last second. All processes that answered users are killed.
func killedWithFile(l *losing) {
	server := l.at.hand.servers[0]
	files := l.copyFiles(server)
	l.ahead(server)
	last := l.dies(server)
	killCallers(l)
	l.replaces(server, files)
	l.lacks(last, server)
}

func resumesWithNewCallers(l *losing) {
	newCallers(l)
	for _, sink := range l.paused {
		l.ok("sink", "resume", sink, "--by", "ann", "--why", "a test")
	}
}

// cutOffProcess cuts one process off, and restarts Redis from an old file. Without a margin only a person can decide.
func cutOffProcess(l *losing) {
	server := l.at.hand.servers[0]
	files := l.copyFiles(server)
	l.lasts(time.Now(), fileAge, "the file gets old")
	l.ahead(server)
	last := l.dies(server)
	l.side.Refuse(true)
	l.side.CutAll()
	l.replaces(server, files)
	l.lacks(last, server)
}

// comesBack joins the process again, after a person has accepted the loss.
func comesBack(l *losing) {
	require.True(l.t, l.person, "only a person can decide")
	l.side.Refuse(false)
	resumes(l)
}
