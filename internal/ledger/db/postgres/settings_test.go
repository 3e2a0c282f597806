package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	good := settings{version: 130_000, readOnly: "off", commit: "on", fsync: "on", fullPage: "on"}
	require.Empty(t, good.problems())
	for _, commit := range []string{"local", "remote_write", "remote_apply"} {
		s := good
		s.commit = commit
		require.Empty(t, s.problems())
	}
	local := good
	local.commit, local.standbys = "local", "ANY 1 (a, b)"
	require.ErrorContains(t, db.Refuse(local.problems(), nil), "synchronous_commit is local")
	bad := settings{version: 120_020, recovery: true, readOnly: "on", commit: "off", fsync: "off", fullPage: "off"}
	err := db.Refuse(bad.problems(), nil)
	for _, setting := range []string{"server_version_num", "pg_is_in_recovery", "synchronous_commit", "fsync",
		"full_page_writes"} {
		require.ErrorContains(t, err, setting+" is ")
	}
	err = db.Refuse(bad.problems(), Unsafe())
	require.ErrorContains(t, err, "pg_is_in_recovery")
	require.NotContains(t, err.Error(), "fsync")
}
