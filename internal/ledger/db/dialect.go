package db

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// Dialect has everything that differs between the databases.
type Dialect struct {
	// Name is the value of ledger.driver, and begins errors.
	Name string
	Queries
	// Migrations has the steps of the schema. Lock has the statements that lock out other migrations.
	Migrations []Step
	Lock       []string
	// Pack returns the arguments that pass a table to one statement. The table's columns are []string, []int32 or
	// []int64.
	Pack func(columns ...any) ([]any, error)
	// OrNothing, if not empty, is a suffix that makes an insert skip existing packets (see InsertOnce).
	OrNothing string
	// Copies says that the first try assumes that all undecided grants are new, and uses COPY.
	Copies bool
	// ByRow says that InsertGrants and CreditUsers have the placeholders of one row, which is repeated Stmt.Rows times.
	ByRow bool
	// Share is a suffix that makes a SELECT lock its rows until the transaction ends. It is empty if the database runs
	// only one write transaction at a time.
	Share string
	// Now is an expression for the database's clock, in milliseconds.
	Now string
	// Blocks is a query for the number of blocks of table account, if a query can select rows by the number of their
	// block.
	Blocks string
	// Version is an expression for the version of the server or of the SQLite library.
	Version string
	// SemiSync has the queries for the switches and for the states of semi-synchronous replication, if the database has
	// it. Their rows are a name and ON or OFF.
	SemiSync [2]string
	// Connections is an expression for the number of connections that the server accepts from ordinary users; 0 if it
	// has no limit.
	Connections string
	// Denied is a query for the rights that the user lacks on the named tables. It is empty if the database has no such
	// check.
	Denied string
}

// Queries are the statements of a database. In its file of SQL their names are in snake case.
type Queries struct {
	// HasSchema counts the table hongbao_schema.
	HasSchema string
	// RefuseNewer is formatted with this build's version. It fails, or on SQLite returns a row, if a step of the schema
	// does not allow builds of this version.
	RefuseNewer string
	// InsertGrants takes the packed columns of table grants except batch, then the batch.
	InsertGrants string
	// ReadGrants takes the packed columns campaign and packet; it returns the existing rows.
	ReadGrants string
	// ReadQuarantine takes the packed columns campaign and packet. It returns the grant, resolved_at, the resolution
	// and the reason of each of their rows in quarantine.
	ReadQuarantine string
	// InsertQuarantine takes the packed columns of quarantine except id, created_at, batch and the decision; then
	// created_at and batch.
	InsertQuarantine string
	// FindQuarantined takes the packed columns campaign, packet, shard, seq, user_id, amount and a number; it returns
	// the number, id, resolved_at and batch of the existing rows of quarantine.
	FindQuarantined string
	// CreditUsers takes the packed columns id, currency and amount of user accounts, sorted by id.
	CreditUsers string
	// AddToBases takes the packed columns id and amount of accounts. It adds to their bases.
	AddToBases string
	// InsertCodes takes the packed columns campaign, packet and code; a taken code or packet fails the whole statement.
	InsertCodes string
	// ReadCodes takes the packed columns campaign and packet; it returns packet and code of the existing rows.
	ReadCodes string
	// InsertPending takes the packed columns of table grants except batch, then owner, batch, and 1 if since must not be
	// after granted_at.
	InsertPending string
	// ReadPending takes the packed columns campaign and packet; it returns the columns of a pending row.
	ReadPending string
	// TakePending takes the packed columns campaign, packet, batch and the new batch, then the owner.
	TakePending string
	// DeletePending takes the packed column packet, then the campaign, the batch and asked_at, which may be 0 for any.
	DeletePending string

	// These statements insert a row, or change nothing if its key exists.
	InsertReserve, InsertDeployment, InsertDisowned, InsertAcceptedLoss, InsertSeal, InsertControl, InsertOwed string
	// InsertOnceClaim takes caller, idempotency_key, body_hash and claim; insertJournal takes the columns of journal.
	InsertOnceClaim, InsertJournal string
	// These statements add to a row, or insert it if it does not exist.
	AddToAccount, AddToCreditAccount, AddToFund string
	// SetArchiveCopy takes the columns of archive_copy; it inserts or replaces the row.
	SetArchiveCopy string
}

func (q *Queries) byName() map[string]*string {
	return map[string]*string{
		"has_schema": &q.HasSchema, "refuse_newer": &q.RefuseNewer, "insert_grants": &q.InsertGrants, "read_grants": &q.ReadGrants,
		"read_quarantine": &q.ReadQuarantine, "insert_quarantine": &q.InsertQuarantine,
		"find_quarantined": &q.FindQuarantined,
		"credit_users":     &q.CreditUsers, "add_to_bases": &q.AddToBases, "set_archive_copy": &q.SetArchiveCopy, "insert_codes": &q.InsertCodes, "read_codes": &q.ReadCodes,
		"insert_pending": &q.InsertPending, "read_pending": &q.ReadPending, "take_pending": &q.TakePending,
		"delete_pending": &q.DeletePending, "insert_reserve": &q.InsertReserve,
		"insert_deployment": &q.InsertDeployment, "insert_disowned": &q.InsertDisowned,
		"insert_accepted_loss": &q.InsertAcceptedLoss, "insert_seal": &q.InsertSeal,
		"insert_control":    &q.InsertControl,
		"insert_owed":       &q.InsertOwed,
		"insert_once_claim": &q.InsertOnceClaim, "insert_journal": &q.InsertJournal, "add_to_account": &q.AddToAccount,
		"add_to_credit_account": &q.AddToCreditAccount, "add_to_fund": &q.AddToFund,
	}
}

// Standard has the statements that PostgreSQL and SQLite share.
//
//go:embed standard.sql
var Standard string

// Rights grants the roles their rights, in PostgreSQL's SQL. MySQL's statements are made of it, too.
//
//go:embed rights.sql
var Rights string

// LoadQueries reads the statements of a database. Each must be in the texts exactly once; otherwise the build is
// faulty, and LoadQueries panics.
func LoadQueries(texts ...string) Queries {
	var q Queries
	fields := q.byName()
	for _, text := range texts {
		for _, block := range strings.Split(text, "-- name: ")[1:] {
			name, sql, _ := strings.Cut(block, "\n")
			field := fields[name]
			if field == nil || *field != "" {
				panic(fmt.Sprintf("statement %s is unknown or appears twice", name))
			}
			*field = withoutComments(sql)
		}
	}
	for name, field := range fields {
		if *field == "" {
			panic(fmt.Sprintf("statement %s is missing", name))
		}
	}
	return q
}

func withoutComments(sql string) string {
	lines := strings.Split(sql, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "--") })
	return strings.TrimRight(strings.Join(lines, "\n"), ";\n")
}

// InsertOnce makes an insert skip existing packets. The first try does not skip: an existing packet makes it fail with
// ErrAgain, and the next try skips the packet. This is faster, because ON CONFLICT costs PostgreSQL a quarter of the
// insert's time. MySQL counts a skipped packet as inserted if a proxy sets CLIENT_FOUND_ROWS, so every later try must
// read the rows back. SQLite's statements always skip, and their count is right.
func (d *Dialect) InsertOnce(insert string, try int) string {
	if try > 0 {
		return insert + d.OrNothing
	}
	return insert
}
