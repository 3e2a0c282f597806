package mysql

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	good := settings{
		"version": "8.0.16", "read_only": "OFF", "super_read_only": "OFF", "innodb_read_only": "OFF",
		"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "innodb_flush_method": "fsync", "log_bin": "ON",
		"sync_binlog": "1", "binlog_format": "ROW", "sql_mode": "PIPES_AS_CONCAT,STRICT_ALL_TABLES",
		"max_allowed_packet": "16777216", "rpl_semi_sync_source_enabled": "ON",
		"rpl_semi_sync_source_wait_point": "AFTER_SYNC",
	}
	require.Empty(t, good.problems())
	for setting, values := range map[string]map[string]bool{
		"version": {"8.4.3": true, "9.1.0-debug": true, "10.6.0-MariaDB": true, "11.8.2-MariaDB-ubu2404": true,
			"8.0.15": false, "5.7.44-log": false, "10.5.29-MariaDB": false, "8.0.11-TiDB-v7.5.0": false, "unknown": false},
		"read_only":                       {"ON": false},
		"super_read_only":                 {"ON": false},
		"innodb_read_only":                {"ON": false},
		"innodb_flush_log_at_trx_commit":  {"0": false, "2": false, "3": false},
		"innodb_doublewrite":              {"OFF": false, "DETECT_ONLY": false, "DETECT_AND_RECOVER": true},
		"innodb_flush_method":             {"nosync": false, "littlesync": false, "O_DIRECT": true},
		"sync_binlog":                     {"0": false, "100": false},
		"binlog_format":                   {"STATEMENT": false, "MIXED": true},
		"sql_mode":                        {"": false, "STRICT_ALL_TABLES": false, "PIPES_AS_CONCAT": false},
		"max_allowed_packet":              {"4194304": false, "67108864": true, "": false},
		"rpl_semi_sync_source_wait_point": {"AFTER_COMMIT": false},
	} {
		for value, fine := range values {
			s := maps.Clone(good)
			s[setting] = value
			bad := s.problems()
			if fine {
				require.Empty(t, bad, "%s = %s", setting, value)
				continue
			}
			require.Len(t, bad, 1, "%s = %s", setting, value)
			require.Equal(t, setting, bad[0].Setting)
			require.Equal(t, value, bad[0].Value)
			require.NotEmpty(t, bad[0].Fix)
		}
	}
	s := maps.Clone(good)
	s["log_bin"], s["sync_binlog"], s["binlog_format"] = "OFF", "0", "STATEMENT"
	s["version"], s["innodb_flush_log_at_trx_commit"] = "10.11.19-MariaDB", "3"
	delete(s, "super_read_only")
	s["rpl_semi_sync_source_enabled"], s["rpl_semi_sync_source_wait_point"] = "OFF", "AFTER_COMMIT"
	s["rpl_semi_sync_master_enabled"], s["rpl_semi_sync_master_wait_point"] = "ON", "AFTER_SYNC"
	require.Empty(t, s.problems(), "if the binary log is off, its settings do not matter")
	s["read_only"], s["innodb_flush_log_at_trx_commit"] = "ON", "2"
	err := db.Refuse(s.problems(), Unsafe())
	require.ErrorContains(t, err, "read_only is ON")
	require.NotContains(t, err.Error(), "innodb_flush_log_at_trx_commit")
}
