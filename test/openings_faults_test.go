package test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// downFor returns a fault in which Redis loses the grants of its last second or so, and answers again when its last
// write is d ago.
func downFor(d time.Duration) func(l *losing) {
	return func(l *losing) {
		files, since := l.copyFiles(l.at.hand.servers[0]), time.Now()
		l.restartsFrom(files, func() { l.lasts(since, d, "Redis is down") })
	}
}

// aged returns a fault in which Redis restarts from a file whose last write was d before the loss.
func aged(d time.Duration) func(l *losing) {
	return func(l *losing) {
		l.restartsFrom(l.ages(l.copyFiles(l.at.hand.servers[0]), d), func() {})
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
func startsFromFile(l *losing) { l.restartsFrom(l.file, func() {}) }

// quietRestarts lets users grab, and restarts Redis twice from one file that has everything. Nothing may be withheld.
func quietRestarts(l *losing) {
	server := l.at.hand.servers[0]
	l.hire()
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

// clockWasAhead returns a fault: Redis' clock was ahead by a duration until now, so the ids of new entries stay ahead, and
// a dead process has left a registration in the future. A new process registers and answers users. Then it dies, and
// Redis restarts from a file that lacks its last grants. The sinks stand still meanwhile.
func clockWasAhead(by time.Duration) func(l *losing) {
	return func(l *losing) {
		l.leavesTimes(by)
		pauses("balance", "kafka")(l)
		fresh := l.newcomer()
		l.pours("the rain continues")
		files := l.copyFiles(l.at.hand.servers[0])
		fresh.some(l.t.Context(), 20)
		l.losesWith(fresh, files, time.Now())
	}
}

// oldFileAfterTheClock does the same with a file of 60 s ago, which lacks the new process's registration. By the ids of
// its entries the file is new.
func oldFileAfterTheClock(l *losing) {
	l.leavesTimes(time.Minute)
	pauses("balance", "kafka")(l)
	files, since := l.copyFiles(l.at.hand.servers[0]), time.Now()
	fresh := l.newcomer()
	l.pours("the rain continues")
	fresh.some(l.t.Context(), 20)
	l.losesWith(fresh, files, since.Add(time.Minute))
}

// fileOfTheFuture does the same with a file of 60 s ago, when Redis' clock was still ahead by as much. So the file seems
// to be new. Only the lost grants that other processes know are earlier.
func fileOfTheFuture(l *losing) {
	l.leavesTimes(time.Minute)
	pauses("balance", "kafka")(l)
	files, since := l.ages(l.copyFiles(l.at.hand.servers[0]), -time.Minute), time.Now()
	fresh := l.newcomer()
	l.pours("the rain continues")
	fresh.some(l.t.Context(), 20)
	l.losesWith(fresh, files, since.Add(time.Minute))
}

// newcomer starts a process, whose first users grab.
func (l *losing) newcomer() *callers {
	p := l.goneProducer()
	c := &callers{people: l.people(p, l.id), first: 6_000_000, kill: p.kill}
	l.near = append(l.near, c)
	c.some(l.t.Context(), 20)
	return c
}

// losesWith kills a process and Redis, which restarts at a time from older files.
func (l *losing) losesWith(c *callers, files string, at time.Time) {
	l.t.Helper()
	l.restartsFrom(files, func() {
		c.kill()
		l.lasts(time.Now(), time.Until(at), "Redis is down")
	})
}

// leavesTimes leaves in Redis what a clock leaves that was ahead.
func (l *losing) leavesTimes(by time.Duration) {
	l.t.Helper()
	ctx, keys, ahead := l.t.Context(), l.store.Shard(0).Keys, time.Now().Add(by).UnixMilli()
	id := fmt.Sprintf("%d-0", ahead)
	require.NoError(l.t, l.rdb.Do(ctx, "XSETID", keys.Events(), id).Err())
	lines := l.rdb.HGetAll(ctx, keys.Witnesses()).Val()
	require.NotEmpty(l.t, lines, "processes have registered")
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, " ")
		require.NoError(l.t, l.rdb.HSet(ctx, keys.Witnesses(), "dead", fmt.Sprint(ahead, " ", rest)).Err())
		break
	}
	l.pours("the rain continues")
	last, err := l.rdb.XRevRangeN(ctx, keys.Events(), "+", "-", 1).Result()
	require.NoError(l.t, err)
	require.Len(l.t, last, 1)
	require.GreaterOrEqual(l.t, last[0].ID, id, "the fault fired: the ids are ahead")
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
	l.resumeSinks()
}

func (l *losing) resumeSinks() {
	for _, sink := range l.paused {
		l.ok("sink", "resume", sink, "--by", "ann", "--why", "a test")
	}
}

// killedWithFile restarts Redis from a file that lacks the last second. All processes that answered users are killed.
func killedWithFile(l *losing) {
	l.restartsFrom(l.copyFiles(l.at.hand.servers[0]), func() { killCallers(l) })
}

func resumesWithNewCallers(l *losing) {
	newCallers(l)
	l.resumeSinks()
}

// cutOffProcess cuts one process off, and restarts Redis from an old file. Without a margin only a person can decide.
func cutOffProcess(l *losing) {
	files := l.copyFiles(l.at.hand.servers[0])
	l.lasts(time.Now(), fileAge, "the file gets old")
	l.restartsFrom(files, func() {
		l.side.Refuse(true)
		l.side.CutAll()
	})
}

// comesBack joins the process again, after a person has accepted the loss.
func comesBack(l *losing) {
	require.True(l.t, l.person, "only a person can decide")
	l.side.Refuse(false)
	resumes(l)
}
