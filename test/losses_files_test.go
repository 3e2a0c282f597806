package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// fsyncs writes marks to the append-only file until the test ends. It returns the last written mark and the last mark
// that is known to be on the disk.
func fsyncs(l *losing, server *testkit.RedisServer) (written, onDisk *atomic.Int64) {
	written, onDisk = &atomic.Int64{}, &atomic.Int64{}
	client := server.Client(l.t, func(o *redis.Options) { o.PoolSize, o.ReadTimeout = 500, startTime })
	ctx := l.t.Context()
	go func() {
		turn := time.NewTicker(10 * time.Millisecond)
		defer turn.Stop()
		for ; ctx.Err() == nil; <-turn.C {
			go func(n int64) {
				pipe := client.Pipeline()
				pipe.Set(ctx, fsyncMark, n, 0)
				on := pipe.Do(ctx, "WAITAOF", 1, 0, 0)
				if _, err := pipe.Exec(ctx); err != nil {
					return // the server was killed
				}
				if got, err := on.Slice(); err == nil && len(got) == 2 && got[0] == int64(1) {
					for was := onDisk.Load(); was < n && !onDisk.CompareAndSwap(was, n); was = onDisk.Load() {
					}
				}
			}(written.Add(1))
		}
	}()
	return written, onDisk
}

const fsyncMark = "fsync-mark"

// cutToTheLastFsync simulates a crash of the machine: the append-only file keeps only what was on the disk.
func cutToTheLastFsync(l *losing) {
	server := l.at.hand.servers[0]
	written, onDisk := fsyncs(l, server)
	testkit.Eventually(l.t, startTime, func() bool { return onDisk.Load() > 100 }, "marks are on the disk")
	var last int64
	for tries := 1; ; tries++ {
		was := onDisk.Load()
		testkit.Eventually(l.t, startTime, func() bool { return onDisk.Load() > was }, "an fsync has just ended")
		if l.class == fast {
			l.idle.some(l.t.Context(), 20)
		}
		testkit.Eventually(l.t, startTime, func() bool { return written.Load() > onDisk.Load()+40 }, "the next fsync is due")
		last = l.grantedOn(server)
		behind := written.Load() + 1
		testkit.Eventually(l.t, startTime, func() bool { return written.Load() > behind+2 }, "a mark follows these grants")
		require.NoError(l.t, server.Stop())
		l.lasts(time.Now(), 200*time.Millisecond, "answers in flight arrive")
		if cutsGrants(l, server, onDisk.Load()+1, behind) {
			break
		}
		require.Less(l.t, tries, 20, "no grants were written after an fsync")
		require.NoError(l.t, server.Cont())
	}
	require.NoError(l.t, server.Restart())
	l.lacks(last, server)
}

// cutsGrants kills a stopped server and cuts its append-only file before a mark. It does so only if the file has grants
// between this mark and a later one.
func cutsGrants(l *losing, server *testkit.RedisServer, mark, later int64) bool {
	l.t.Helper()
	file, _ := increments(l.t, server.Dir())
	data, err := os.ReadFile(file)
	require.NoError(l.t, err)
	find := func(n int64) int {
		text := fmt.Sprint(n)
		return bytes.Index(data, fmt.Appendf(nil, "%s\r\n$%d\r\n%s\r\n", fsyncMark, len(text), text))
	}
	at, end := find(mark), find(later)
	receipts := []byte(l.store.Shard(l.shards[0]).Keys.Receipts(l.id))
	if at < 0 || end < at || !bytes.Contains(data[at:end], receipts) {
		return false
	}
	require.NoError(l.t, server.Kill())
	require.NoError(l.t, os.Truncate(file, int64(bytes.LastIndex(data[:at], []byte("*3\r\n")))))
	return true
}

// fileAge is the age of the old copy from which Redis starts.
const fileAge = 12 * time.Second

// olderAppendOnlyFile restarts Redis from an older copy of its append-only files.
func olderAppendOnlyFile(l *losing) {
	old := l.copyFiles(l.at.hand.servers[0])
	l.lasts(time.Now(), fileAge, "the file gets old")
	l.restartsFrom(old, func() {})
}

// copyFiles returns a copy of a server's append-only files.
func (l *losing) copyFiles(server *testkit.RedisServer) (folder string) {
	l.t.Helper()
	file, _ := increments(l.t, server.Dir())
	folder = l.t.TempDir()
	require.NoError(l.t, os.CopyFS(folder, os.DirFS(filepath.Dir(file))))
	return folder
}

// replaces restarts a server with other append-only files.
func (l *losing) replaces(server *testkit.RedisServer, files string) {
	l.t.Helper()
	dir := filepath.Join(server.Dir(), "appendonlydir")
	require.NoError(l.t, os.RemoveAll(dir))
	require.NoError(l.t, os.CopyFS(dir, os.DirFS(files)))
	require.NoError(l.t, server.Restart())
}

// restartsFrom kills Redis once it has grants that these files lack, and restarts it from them. It calls meanwhile between
// the two.
func (l *losing) restartsFrom(files string, meanwhile func()) {
	l.t.Helper()
	server := l.at.hand.servers[0]
	l.ahead(server)
	last := l.dies(server)
	meanwhile()
	l.replaces(server, files)
	l.lacks(last, server)
}

// olderRDB restarts Redis from an older RDB file, as the base of an empty append-only file.
func olderRDB(l *losing) {
	server, old := l.at.hand.servers[0], l.t.TempDir()
	server.Order(l.t, "SAVE")
	data, err := os.ReadFile(filepath.Join(server.Dir(), "dump.rdb"))
	require.NoError(l.t, err)
	for name, text := range map[string][]byte{"appendonly.aof.1.base.rdb": data, "appendonly.aof.1.incr.aof": nil,
		"appendonly.aof.manifest": []byte("file appendonly.aof.1.base.rdb seq 1 type b\n" +
			"file appendonly.aof.1.incr.aof seq 1 type i\n")} {
		require.NoError(l.t, os.WriteFile(filepath.Join(old, name), text, 0o600))
	}
	l.lasts(time.Now(), fileAge, "the file gets old")
	l.restartsFrom(old, func() {})
}
