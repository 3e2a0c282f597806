package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

func testAcknowledge(t *testing.T, f *fixture) {
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	a := model.Acknowledgement{Kind: "duplicate_in_topic", Where: "topic", Campaign: "rain", Packet: 7, Event: "3-7",
		Detail: "a copy",
		By:     "ann", Why: "known", Until: until}
	require.NoError(t, f.ledger.Acknowledge(t.Context(), a))
	b := a
	b.Packet = 8
	require.NoError(t, f.ledger.Acknowledge(t.Context(), b))
	a.Why, a.Until = "still known", until.Add(time.Hour)
	require.NoError(t, f.ledger.Acknowledge(t.Context(), a), "it replaces the earlier one")
	list, err := f.ledger.Acknowledged(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []model.Acknowledgement{a, b}, list)

	f.tamper(t, db.Stmt{SQL: `UPDATE acknowledged SET until_at = $1 WHERE packet = 7`,
		Args: []any{time.Now().UnixMilli()}})
	list, err = f.ledger.Acknowledged(t.Context())
	require.NoError(t, err)
	require.Equal(t, []model.Acknowledgement{b}, list, "the other one has expired")
	for _, change := range []func(*model.Acknowledgement){
		func(a *model.Acknowledgement) { a.Until = time.Now() },
		func(a *model.Acknowledgement) { a.Until = time.Now().Add(367 * 24 * time.Hour) },
		func(a *model.Acknowledgement) { a.By = "" },
		func(a *model.Acknowledgement) { a.Why = "" },
		func(a *model.Acknowledgement) { a.Detail = "" },
		func(a *model.Acknowledgement) { a.Where = strings.Repeat("x", 256) },
	} {
		bad := b
		change(&bad)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(f.ledger.Acknowledge(t.Context(), bad)))
	}
}
