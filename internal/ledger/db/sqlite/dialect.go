package sqlite

import (
	"embed"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed statements.sql
var statements string

//go:embed migrations
var migrations embed.FS

var dialect = db.Dialect{
	Name:       Name,
	Queries:    db.LoadQueries(db.Standard, statements),
	Migrations: db.MustLoadSteps(migrations, "migrations"),
	Parts:      db.PartsByID,
	Now:        `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
}
