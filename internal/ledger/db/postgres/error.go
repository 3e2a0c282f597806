package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// errNotPrimary says that the server of a connection is not the primary, or no longer.
var errNotPrimary = errors.New("the server is a standby, or read-only")

// notPrimary reports whether an error says that the server is not the primary.
func notPrimary(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errNotPrimary) || errors.As(err, &pg) && pg.Code == "25006"
}

// classify classifies an error of the server. sent says that a COMMIT may have arrived.
func classify(err error, sent bool) error {
	class := hongbao.ClassTransient
	if sent && !pgconn.SafeToRetry(err) {
		class = hongbao.ClassUnknown
	}
	var unsafe *db.SettingError
	if errors.As(err, &unsafe) { // of a new connection: nothing was sent
		return hongbao.Outagef(hongbao.ClassTransient, "PostgreSQL: %w", err)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return hongbao.Outagef(class, "PostgreSQL: %w", err)
	}
	if pg.Severity == "ERROR" || pg.SeverityUnlocalized == "ERROR" {
		class = hongbao.ClassTransient // the server has rolled back
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "23505": // serialization failure, deadlock, lock timeout, duplicate key
		return hongbao.Outagef(class, "PostgreSQL: %w: %w", db.ErrAgain, err)
	case "22012": // division by zero: only refuse_newer divides
		return hongbao.Outagef(class, "PostgreSQL: %w: %w", db.ErrNewerSchema, err)
	case "23514":
		return hongbao.Errorf(hongbao.ClassPermanent, "PostgreSQL: %w: %w", db.ErrOverdraw, err)
	case "23503":
		return hongbao.Errorf(hongbao.ClassBroken, "PostgreSQL, a row was deleted by hand: %w", err)
	case "25006", "57014", "25P03": // read-only server, statement timeout, idle-in-transaction timeout
		return hongbao.Outagef(class, "PostgreSQL: %w", err)
	}
	switch pg.Code[:2] {
	case "22", "23": // data, constraints
		return hongbao.Errorf(hongbao.ClassPermanent, "PostgreSQL: %w", err)
	case "08", "53", "57", "58", "XX": // connection, resources, operator, system, internal
		return hongbao.Outagef(class, "PostgreSQL: %w", err)
	case "28", "3D", "42": // authorization, database, schema: the configuration is wrong for all grants
		return hongbao.Outagef(class, "PostgreSQL refuses access, check the DSN, the user's rights and the schema: %w", err)
	}
	return hongbao.Outagef(class, "PostgreSQL: %w", err)
}
