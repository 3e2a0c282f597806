package lua_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// Codes go in by chunks of any length, again too, and only beside the plan that is there.
func TestPutCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	codes := make([]string, 2345)
	for i := range codes {
		codes[i] = fmt.Sprint("C", i+1)
	}
	put := func(first int64, hash string, codes ...string) lua.LoadState {
		t.Helper()
		at, err := lua.PutCodes(ctx, b.rdb, b.k, &lua.CodesChunk{Campaign: "rain", Hash: hash, First: first, Codes: codes})
		require.NoError(t, err)
		return at
	}
	require.Equal(t, lua.LoadState{}, put(1, "h", "C1"), "it was not begun")
	require.NoError(t, begin(ctx, b))
	require.Equal(t, lua.LoadState{State: "loading", Hash: "h"}, put(1, "other", "X"), "another plan")
	require.Equal(t, lua.LoadState{State: "loading", Hash: "h"}, put(1, "h"), "it only asks")
	require.Equal(t, lua.LoadState{State: "loading", Hash: "h", Loaded: 2001}, put(1, "h", codes[:2001]...))
	require.Equal(t, lua.LoadState{State: "loading", Hash: "h", Loaded: 2345}, put(1001, "h", codes[1000:]...))
	got, err := lua.Codes(ctx, b.rdb, b.k, "rain", []int64{2345, 9999, 1, 1001})
	require.NoError(t, err)
	require.Equal(t, []string{"C2345", "", "C1", "C1001"}, got)
	got, err = lua.Codes(ctx, b.rdb, b.k, "rain", nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestLeftoverCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Codes("rain"), "1", "A1").Err())
	require.ErrorContains(t, begin(t.Context(), b), "HBLEFTOVER")
}

func TestHasCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := lua.HasCodes(t.Context(), b.rdb, b.k, "rain")
	require.ErrorIs(t, err, lua.ErrNotInRedis)
	b.load(t, spec("rain", 5))
	has, err := lua.HasCodes(t.Context(), b.rdb, b.k, "rain")
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Campaign("rain"), lua.CodesField, "1").Err())
	has, err = lua.HasCodes(t.Context(), b.rdb, b.k, "rain")
	require.NoError(t, err)
	require.True(t, has)
}

func TestFillCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, begin(t.Context(), b))
	require.NoError(t, putCodes(t.Context(), b))
	one, two := []hongbao.Receipt{{Packet: 2}}, []hongbao.Receipt{{Packet: 1}, {Packet: 2}}
	require.NoError(t, lua.FillCodes(t.Context(), b.rdb, b.k, "rain", one, two))
	require.Equal(t, []hongbao.Receipt{{Packet: 2, Code: "B2"}}, one)
	require.Equal(t, []hongbao.Receipt{{Packet: 1, Code: "A1"}, {Packet: 2, Code: "B2"}}, two)
	err := lua.FillCodes(t.Context(), b.rdb, b.k, "rain", []hongbao.Receipt{{Packet: 1}, {Packet: 3}})
	require.ErrorIs(t, err, lua.ErrNoCode)
	require.ErrorContains(t, err, "packet 3 of campaign rain")
	require.ErrorContains(t, err, "hongbao campaign load rain")
	require.Equal(t, hongbao.Broken, hongbao.ClassOf(err))
}
