package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// aofServer starts a Redis whose data is in dir, with a deployment of one shard.
func aofServer(t *testing.T, dir string, args map[string]string) (*testkit.RedisServer, *bundle) {
	t.Helper()
	server := testkit.NewRedis(t, testkit.RedisOptions{Dir: dir, Args: args})
	rdb := server.Client(t)
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "aof", Shards: 1}, Deployment: "test"})
	require.NoError(t, err)
	return server, bundleOf(st, nil)
}

// grabOne lets user n grab a packet of campaign rain.
func (b *bundle) grabOne(t *testing.T, n int) hongbao.Answer {
	t.Helper()
	return storetest.Grab(t, b.store.Shard(0), "rain", fmt.Sprintf("%s/r%d", user(n), n))[0]
}

// whole checks that Redis has the first n grabs completely, and nothing of any later grab. It compares the seq, the
// entries, the receipts, the stock and the counts.
func (b *bundle) whole(t *testing.T, n int64, packets int64) {
	t.Helper()
	k := b.store.Shard(0)
	seq, err := k.LastSeq(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, seq)
	entries, err := k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Len(t, entries, int(n))
	receipts, err := b.rdb.HLen(t.Context(), k.Keys.Receipts("rain")).Result()
	require.NoError(t, err)
	require.Equal(t, n, receipts)
	sum := hongbao.Amount(0)
	for i := range entries {
		require.Len(t, entries[i].Grants, 1)
		g := &entries[i].Grants[0]
		require.Equal(t, int64(i+1), g.Seq)
		held, err := k.Place("rain").UserReceipts(t.Context(), g.User)
		require.NoError(t, err)
		has := held.Receipts
		require.Len(t, has, 1)
		require.Equal(t, []any{g.Packet, g.Amount, g.Seq}, []any{has[0].Packet, has[0].Amount, has[0].Seq})
		sum += g.Amount
	}
	stock, err := b.rdb.LLen(t.Context(), k.Keys.Stock("rain")).Result()
	require.NoError(t, err)
	require.Equal(t, packets-n, stock)
	f, err := k.Place("rain").CampaignFields(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{n, packets, int64(sum)}, []int64{f.Granted, f.Loaded, int64(f.GrantedAmount)})
}

// increments returns the path and size of the append-only file that Redis writes to.
func increments(t *testing.T, dir string) (string, int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	return files[0], info.Size()
}

// The append-only file is cut somewhere within the last three grabs (F14). After the restart each grab is complete or
// missing, and the grabs before the cut are complete.
func TestTornAppendOnlyFile(t *testing.T) {
	t.Parallel()
	const before, torn, packets = 3, 3, 10
	dir := t.TempDir()
	server, b := aofServer(t, dir, map[string]string{"appendfsync": "always"})
	require.NoError(t, b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	b.load(t, spec("rain", packets, 1000))
	for i := range before {
		b.grabOne(t, i)
	}
	file, size := increments(t, dir)
	ends := []int64{size}
	for i := range torn {
		b.grabOne(t, before+i)
		_, size = increments(t, dir)
		require.Greater(t, size, ends[i])
		ends = append(ends, size)
	}
	require.NoError(t, server.Kill())
	wholes := map[int64]int{}
	for _, cut := range cuts(ends) {
		copied := t.TempDir()
		require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
		require.NoError(t, os.Truncate(filepath.Join(copied, "appendonlydir", filepath.Base(file)), cut))
		whole := int64(before)
		for whole < before+torn && ends[whole-before+1] <= cut {
			whole++
		}
		wholes[whole]++
		again, c := aofServer(t, copied, map[string]string{"aof-load-truncated": "yes"})
		c.whole(t, whole, packets)
		require.NoError(t, storetest.Open(t.Context(), c.store))
		c.grabOne(t, 100) // the shard accepts new grabs
		c.whole(t, whole+1, packets)
		require.NoError(t, again.Close())
	}
	t.Logf("number of cuts by complete grabs: %v", wholes)
	require.Len(t, wholes, torn+1)
}

// cuts returns offsets to cut at: some next to each end of a grab, and every 31st byte in between.
func cuts(ends []int64) []int64 {
	var out []int64
	for i := range len(ends) - 1 {
		from, to := ends[i], ends[i+1]
		for at := from; at < to; at++ {
			if at-from < 2 || to-at < 4 || (at-from)%31 == 0 {
				out = append(out, at)
			}
		}
	}
	return append(out, ends[len(ends)-1])
}

// Redis is killed five times while it rewrites its append-only file (F19). Every answered grab is still there.
func TestKilledWhileTheAppendOnlyFileIsRewritten(t *testing.T) {
	t.Parallel()
	const packets = 1000
	// The delay makes each saved key take a second, so that the kill interrupts the rewrite.
	server, b := aofServer(t, t.TempDir(), map[string]string{"appendfsync": "always", "rdb-key-save-delay": "1000000"})
	require.NoError(t, b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	b.load(t, spec("rain", packets, 100_000))
	n := 0
	for range 5 {
		for range 10 {
			b.grabOne(t, n)
			n++
		}
		require.NoError(t, b.rdb.BgRewriteAOF(t.Context()).Err())
		for range 10 {
			b.grabOne(t, n)
			n++
		}
		info, err := b.rdb.InfoMap(t.Context(), "persistence").Result()
		require.NoError(t, err)
		require.Equal(t, "1", info["Persistence"]["aof_rewrite_in_progress"], "Redis still rewrites the file when it is killed")
		require.NoError(t, server.Kill())
		require.NoError(t, server.Restart())
		testkit.EventuallyOK(t, 30*time.Second, func() error { return b.rdb.Ping(t.Context()).Err() }, "Redis answers again")
		require.NoError(t, storetest.Open(t.Context(), b.store))
		b.whole(t, int64(n), packets)
	}
}
