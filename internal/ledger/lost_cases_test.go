package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// LostEvents returns the paid and pending grants above a seq, and reports whether the ledger knows other events there.
func testLostEvents(t *testing.T, f *fixture) {
	lost := func(shard int, above int64) Lost {
		l, err := f.ledger.LostEvents(t.Context(), shard, above)
		require.NoError(t, err)
		for i := range l.Grants {
			require.Equal(t, testCurrency, l.Grants[i].Currency)
			l.Grants[i].Currency = ""
		}
		return l
	}
	bare := func(grants []hongbao.Grant) []hongbao.Grant {
		for i := range grants {
			grants[i].EntryID = ""
		}
		return grants
	}
	f.create(t, "rain", 30_010)
	f.create(t, "snow", 10)
	f.settles(t, grantsOf("rain", 1, 10)...)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(append(grantsOf("rain", 11, 12), grant("snow", 7))))
	require.NoError(t, err)
	elsewhere := grant("rain", 14)
	elsewhere.Shard = 2
	f.settles(t, grant("rain", 13), elsewhere)
	all := bare(slices.Insert(grantsOf("rain", 1, 13), 7, grant("snow", 7)))
	require.Equal(t, Lost{Grants: all}, lost(3, 0))
	require.Equal(t, Lost{Grants: all[6:]}, lost(3, 6))
	require.Equal(t, Lost{Grants: all[8:]}, lost(3, 7))
	require.Equal(t, Lost{}, lost(3, 13))
	require.Equal(t, Lost{Grants: bare([]hongbao.Grant{elsewhere})}, lost(2, 0))

	f.settles(t, secondOf(1, "bea")) // seq 1001 goes to quarantine
	require.True(t, lost(3, 1000).Others)
	require.False(t, lost(3, 1001).Others)
	require.NoError(t, f.Settler.Forget(t.Context(), 1, time.Time{}, []hongbao.Grant{grant("snow", 7)}))
	e := closeOf("snow", 10, 0)
	e.Seq = 2000
	f.refunds(t, e)
	require.Equal(t, Lost{Others: true}, lost(3, 1999))
	require.Equal(t, Lost{}, lost(3, 2000))
	d := f.deal(t, "hail", 10, 4, 5)
	_, err = f.ledger.Refund(t.Context(), d.closes(), 0)
	require.NoError(t, err)
	require.Equal(t, Lost{Others: true}, lost(5, 0), "the close of a place")
	require.Equal(t, Lost{}, lost(5, 1))
	f.tamper(t, db.Stmt{SQL: `INSERT INTO archive_shard (campaign, shard, last_seq) VALUES ('fog', 1, 70)`})
	require.Equal(t, Lost{Others: true}, lost(1, 69))
	require.Equal(t, Lost{}, lost(1, 70))

	for first := int64(20); first < 30_010; first += 5_000 { // more than one page
		f.settles(t, grantsOf("rain", first, min(first+4_999, 30_010))...)
	}
	require.Equal(t, bare(grantsOf("rain", 20, 30_010)), lost(3, 19).Grants)
}
