package mysql

import (
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// classify classifies an error of the server by its number. sent says that a COMMIT may have arrived.
func classify(err error, sent bool) error {
	class := hongbao.ClassTransient
	if sent && !errors.Is(err, driver.ErrBadConn) { // the driver returns ErrBadConn only if nothing was sent
		class = hongbao.ClassUnknown
	}
	if errors.Is(err, driver.ErrSkip) || errors.Is(err, mysql.ErrPktTooLarge) { // the driver's own errors
		return hongbao.Errorf(hongbao.ClassPermanent, "MySQL, the statement is longer than max_allowed_packet: %w", err)
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return hongbao.Outagef(class, "MySQL: %w", err)
	}
	switch e.Number {
	// Record changed, lock timeout, deadlock (on Galera also in response to COMMIT), duplicate key.
	case 1020, 1205, 1213, 1062:
		return hongbao.Outagef(hongbao.ClassTransient, "MySQL: %w: %w", db.ErrAgain, err)
	case 1242: // a scalar subquery returned two rows: only refuse_newer can cause this
		return hongbao.Outagef(hongbao.ClassTransient, "MySQL: %w: %w", db.ErrNewerSchema, err)
	case 3819, 4025: // CHECK, on MySQL and on MariaDB
		return hongbao.Errorf(hongbao.ClassPermanent, "MySQL: %w: %w", db.ErrOverdraw, err)
	case 1216, 1217, 1451, 1452: // foreign keys
		return hongbao.Errorf(hongbao.ClassBroken, "MySQL, a row was deleted by hand: %w", err)
	// Null, truncated, out of range, wrong value, too long, overflow; invalid JSON for JSON_TABLE.
	case 1048, 1264, 1265, 1292, 1366, 1406, 1690, 3140, 3141, 3156, 3665, 3666, 3667, 4038, 4174, 4175, 4176:
		return hongbao.Errorf(hongbao.ClassPermanent, "MySQL: %w", err)
	case 1044, 1045, 1049, 1054, 1064, 1142, 1143, 1146, 1227, 1305, 1370, 1698: // rights, database, schema, syntax
		return hongbao.Outagef(class, "MySQL refuses access, check the DSN, the user's rights and the schema: %w", err)
	}
	if isReadOnly(err) {
		return hongbao.Outagef(class, "MySQL is not a primary, or no longer accepts writes: %w", err)
	}
	return hongbao.Outagef(class, "MySQL: %w", err) // shutdown, killed, interrupted, disk, memory, connections
}

// notPrimary are the numbers with which a server refuses writes: read-only, its transactions read-only, InnoDB
// read-only, a node of Galera outside of the primary component.
var notPrimary = []uint16{1290, 1792, 1836, 1047}

// isReadOnly reports whether the server has turned read-only, as after a failover.
func isReadOnly(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(notPrimary, e.Number)
}
