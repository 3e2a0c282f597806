package ledger

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// codesFrom returns code A1 for packet 1, and so on.
func codesFrom(after int64, n int) ([]string, error) {
	codes := make([]string, n)
	for i := range codes {
		codes[i] = fmt.Sprintf("A%d", after+int64(i)+1)
	}
	return codes, nil
}

func (f *fixture) hasCodes(t *testing.T, campaign string, packets int64) {
	t.Helper()
	seen := map[string]bool{}
	for after := int64(0); after < packets; {
		codes, err := f.ledger.Codes(t.Context(), campaign, after, 3000)
		require.NoError(t, err)
		require.NotEmpty(t, codes, "after packet %d", after)
		for _, code := range codes {
			require.False(t, seen[code], "code %s appears twice", code)
			seen[code] = true
		}
		after += int64(len(codes))
	}
	require.Len(t, seen, int(packets))
	stored, err := f.ledger.CodesStored(t.Context(), campaign)
	require.NoError(t, err)
	require.Equal(t, packets, stored)
}

// AddCodes is stopped after a chunk and called again: it continues with the next chunk. Once all codes are stored, a
// call changes nothing.
func testCodes(t *testing.T, f *fixture) {
	const packets = 2*codeChunk + 10
	f.create(t, "rain", packets)
	f.create(t, "snow", 1)
	stop := errors.New("killed")
	for stopAt := int64(0); stopAt < packets; stopAt += codeChunk {
		err := f.ledger.AddCodes(t.Context(), "rain", func(after int64, n int) ([]string, error) {
			if after == stopAt {
				return nil, stop
			}
			return codesFrom(after, n)
		}, nil)
		require.ErrorIs(t, err, stop)
		require.ErrorContains(t, err, "run it again to continue")
		stored, err := f.ledger.CodesStored(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, stopAt, stored)
	}
	var progress []int64
	require.NoError(t, f.ledger.AddCodes(t.Context(), "rain", codesFrom, func(n int64) { progress = append(progress, n) }))
	require.Equal(t, []int64{packets}, progress)
	require.NoError(t, f.ledger.AddCodes(t.Context(), "rain", func(int64, int) ([]string, error) { return nil, stop },
		nil))
	require.NoError(t, f.ledger.AddCodes(t.Context(), "snow", codesFrom, nil),
		"a code is unique only within its campaign")
	f.hasCodes(t, "rain", packets)
	codes, err := f.ledger.CodesOf(t.Context(), "rain", []int64{7, packets + 1, 1})
	require.NoError(t, err)
	require.Equal(t, []string{"A7", "", "A1"}, codes)
}

// If another packet already has a code, a new code is drawn. Codes are case-sensitive.
func testCodesTaken(t *testing.T, f *fixture) {
	f.create(t, "rain", codeChunk+2)
	calls := 0
	draw := func(after int64, n int) ([]string, error) {
		codes, err := codesFrom(after, n)
		if after == codeChunk {
			calls++
			codes = []string{"a1", "A1"}
			if calls == 2 {
				codes = []string{"B1", "B1"}
			}
			if calls == 3 {
				codes = []string{"a1", "B1"}
			}
		}
		return codes, err
	}
	require.NoError(t, f.ledger.AddCodes(t.Context(), "rain", draw, nil))
	require.Equal(t, 3, calls)
	f.hasCodes(t, "rain", codeChunk+2)
	codes, err := f.ledger.Codes(t.Context(), "rain", codeChunk, 9)
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "B1"}, codes)
}

func testCodesTogether(t *testing.T, f *fixture) {
	const packets = 3 * codeChunk
	f.create(t, "rain", packets)
	var drawn atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for i := range 4 {
		group.Go(func() error {
			return f.ledger.AddCodes(ctx, "rain", func(after int64, n int) ([]string, error) {
				drawn.Add(int64(n))
				codes, err := codesFrom(after, n)
				for k := range codes {
					codes[k] += fmt.Sprint("-", i)
				}
				return codes, err
			}, nil)
		})
	}
	require.NoError(t, group.Wait())
	require.GreaterOrEqual(t, drawn.Load(), int64(packets))
	f.hasCodes(t, "rain", packets)
}

func testCodesInvalid(t *testing.T, f *fixture) {
	f.create(t, "rain", 2)
	for want, codes := range map[string][]string{
		"got 1 codes for 2 packets":        {"SECRET"},
		"the code of packet 2: byte 6":     {"A", "SECRET "},
		"the code of packet 1: it is empt": {"", "SECRET"},
	} {
		err := f.ledger.AddCodes(t.Context(), "rain", func(int64, int) ([]string, error) { return codes, nil }, nil)
		require.ErrorContains(t, err, want)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		require.NotContains(t, err.Error(), "SECRET")
	}
	err := f.ledger.AddCodes(t.Context(), "rain", func(int64, int) ([]string, error) {
		return []string{"SECRET",
			"SECRET"}, nil
	}, nil)
	require.Error(t, err, "the number of draws is bounded")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.NotContains(t, err.Error(), "SECRET")
	require.ErrorIs(t, f.ledger.AddCodes(t.Context(), "snow", codesFrom, nil), ErrNoCampaign)
	stored, err := f.ledger.CodesStored(t.Context(), "rain")
	require.NoError(t, err)
	require.Zero(t, stored)
	require.NoError(t, f.ledger.AddCodes(t.Context(), "rain", codesFrom, nil))
	f.tamper(t, db.Stmt{SQL: `DELETE FROM code WHERE packet = 1`})
	_, err = f.ledger.Codes(t.Context(), "rain", 0, 10)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// Every method that reads grants also returns their codes.
func testGrantCodes(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 10)
	require.NoError(t, f.ledger.AddCodes(t.Context(), "snow", codesFrom, nil))
	f.settles(t, append(grantsOf("rain", 1, 3), grantsOf("snow", 4, 6)...)...)
	want := grantsOf("snow", 4, 6)
	for i := range want {
		want[i].Code = fmt.Sprintf("A%d", want[i].Packet)
	}
	f.holds(t, "snow", want)
	f.holds(t, "rain", grantsOf("rain", 1, 3))
	mine, err := f.ledger.UserGrants(t.Context(), "snow", want[1].User)
	require.NoError(t, err)
	require.Len(t, mine, 1)
	require.Equal(t, "A5", mine[0].Code)
	var codes []string
	require.NoError(t, f.ledger.EachGrantBySeq(t.Context(), 3, stream.SeqRange{First: 1, Last: 10},
		func(g hongbao.Grant) error {
			codes = append(codes, g.Code)
			return nil
		}))
	require.Equal(t, []string{"", "", "", "A4", "A5", "A6"}, codes)
	f.settles(t, want...) // the same grants, redelivered with their codes
	require.Empty(t, f.open(t))
}
