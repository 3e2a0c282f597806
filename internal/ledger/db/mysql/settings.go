package mysql

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// settings are the settings that a server reports, by their names in SHOW VARIABLES. Some exist only on MySQL or
// only on MariaDB.
type settings map[string]string

// The oldest accepted versions. They enforce CHECK constraints, have JSON_TABLE, and execute DDL atomically.
var (
	minMySQL   = []int{8, 0, 16}
	minMariaDB = []int{10, 6, 0}
)

// minPacket fits any of our statements: MaxBatch grants with the longest ids.
const minPacket = 16 << 20

var versionPattern = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

func (s settings) mariaDB() bool { return strings.Contains(s["version"], "MariaDB") }

func (s settings) tooOld() bool {
	parts := versionPattern.FindStringSubmatch(s["version"])
	if parts == nil {
		return true
	}
	var has []int
	for _, p := range parts[1:] {
		n, _ := strconv.Atoi(p) // p has only digits; on overflow n is 2^63-1
		has = append(has, n)
	}
	if s.mariaDB() {
		return slices.Compare(has, minMariaDB) < 0
	}
	return slices.Compare(has, minMySQL) < 0
}

func (s settings) problems() []*db.SettingError {
	var bad []*db.SettingError
	want := func(is bool, setting, fix string) {
		if value, ok := s[setting]; ok && !is {
			bad = append(bad, &db.SettingError{Setting: setting, Value: value, Fix: fix})
		}
	}
	want(!s.tooOld(), "version", "upgrade the server to MySQL 8.0.16 or MariaDB 10.6, or newer: older ones do not "+
		"enforce what guards the money")
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		want(s[name] == "OFF", name, "this is a replica, or is being maintained; connect to the primary, or SET "+
			"GLOBAL "+name+" = OFF")
	}
	flush := s["innodb_flush_log_at_trx_commit"]
	want(flush == "1" || flush == "3" && s.mariaDB(), "innodb_flush_log_at_trx_commit",
		"a crash would lose transactions that were confirmed; SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in my.cnf")
	want(s["innodb_doublewrite"] != "OFF" && s["innodb_doublewrite"] != "DETECT_ONLY", "innodb_doublewrite",
		"a power loss could tear pages; set it to ON in my.cnf and restart the server")
	want(s["innodb_flush_method"] != "nosync" && s["innodb_flush_method"] != "littlesync", "innodb_flush_method",
		"a power loss would destroy the database; set it to O_DIRECT in my.cnf and restart the server")
	if s["log_bin"] == "ON" {
		want(s["sync_binlog"] == "1", "sync_binlog",
			"after a crash the server rolls back what the binary log does not have; SET GLOBAL sync_binlog = 1, and in my.cnf")
		want(s["binlog_format"] != "STATEMENT", "binlog_format",
			"it can't record READ COMMITTED transactions; SET GLOBAL binlog_format = ROW, and in my.cnf")
	}
	for _, side := range []string{"rpl_semi_sync_master_", "rpl_semi_sync_source_"} { // the names in MariaDB and in MySQL
		want(s[side+"enabled"] != "ON" || s[side+"wait_point"] == "AFTER_SYNC", side+"wait_point",
			"others see a transaction before the replica has it, so a failover loses what was confirmed; SET GLOBAL "+side+
				"wait_point = 'AFTER_SYNC', and in my.cnf")
	}
	mode := strings.Split(s["sql_mode"], ",")
	want(slices.Contains(mode, "STRICT_ALL_TABLES") && slices.Contains(mode, "PIPES_AS_CONCAT"), "sql_mode",
		"Hongbao sets it on each connection, but the server did not get it: let the proxy forward SET")
	packet, err := strconv.ParseInt(s["max_allowed_packet"], 10, 64)
	want(err == nil && packet >= minPacket, "max_allowed_packet",
		fmt.Sprintf("a full batch would not fit; SET GLOBAL max_allowed_packet = %d, and in my.cnf", minPacket))
	return bad
}
