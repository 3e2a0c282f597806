package store_test

import (
	_ "embed"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// oldTrim is lua/trim.lua of commit 5e94fc8, before entries had version 3.
//
//go:embed testdata/trim-5e94fc8.lua
var oldTrim string

// The trim script of an earlier build runs on entries of version 3. It finds their seqs, so the done floor does not
// rise above the events of an unfinished entry.
func TestAnOlderTrimKeepsTheBitsOfWaitingGrants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const group, chunk, first = "balance", store.ChunkEvents, 69_991
	k := b.k
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", first+19).Err())
	for i, id := range []string{"1-1", "1-2"} {
		lines := ""
		for packet := range 10 {
			lines += strconv.Itoa(10*i+packet+1) + " 10 u" + strconv.Itoa(10*i+packet) + " r -\n"
		}
		values := testkit.Entry(3, "grant", "rain", first+10*i, 1, "1 CNY", lines[:len(lines)-1])
		e, err := stream.ParseEntry(0, id, []string{values[0].(string), values[1].(string)})
		require.NoError(t, err)
		require.EqualValues(t, first+10*i, e.Seq)
		require.NoError(t, b.rdb.Do(t.Context(), append([]any{"XADD", b.k.Keys.Events(), id}, values...)...).Err())
	}
	b.group(t, group)
	raw := b.read(t, group, "w1", 2)
	_, err := k.Ack(t.Context(), group, []stream.SeqRange{{First: chunk, Last: first + 9}, {First: first + 12, Last: first + 13}},
		[]string{raw[0].ID})
	require.NoError(t, err)

	reply, err := b.rdb.Eval(t.Context(), oldTrim, []string{b.k.Keys.Events(), b.k.Keys.Meta(), b.k.Keys.Done(group, 1)},
		0, 1, 10_000, 1_000, "", 1_000, chunk, 1, group, chunk, 1, 0).StringSlice()
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(first+11), reply[1], "how many are finished")
	kept, err := strconv.ParseInt(reply[2], 10, 64)
	require.NoError(t, err)
	require.Contains(t, []int64{first, first + 10}, kept, "the first event kept")
	require.NoError(t, k.RaiseDoneFloor(t.Context(), 0, kept/chunk, []string{group})) // as the worker does after a trim
	done, err := k.GroupDone(t.Context(), group, stream.SeqRange{First: first + 10, Last: first + 19})
	require.NoError(t, err)
	for seq := int64(first + 10); seq < first+20; seq++ {
		require.Equal(t, seq == first+12 || seq == first+13, done.Has(seq), "event %d", seq)
	}
}
