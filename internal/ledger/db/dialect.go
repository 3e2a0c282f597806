package db

import (
	"context"
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
	// Share is a suffix that makes a SELECT lock its rows until the transaction ends. It is empty if the database runs
	// only one write transaction at a time.
	Share string
	// Now is an expression for the database's clock, in milliseconds.
	Now string
	// Parts calls fn with conditions on table account and their arguments. Each account satisfies exactly one of them, and
	// one query can read all accounts that satisfy it.
	Parts func(ctx context.Context, t Txn, fn func(where string, args ...any) error) error
}

// Queries are the statements of a database. In its file of SQL their names are in snake case.
type Queries struct {
	// HasSchema counts the table hongbao_schema.
	HasSchema string
	// RefuseNewer is formatted with this build's version. It fails, or on SQLite returns a row, if a step of the schema
	// does not allow builds of this version.
	RefuseNewer string
	// AskServer returns the version of the server or of the SQLite library, the database's clock in milliseconds, and the
	// number of connections that the server accepts from ordinary users; 0 if it has no limit.
	AskServer string
	// InsertGrants takes a Table of the columns of grants except batch, then the batch. An existing packet makes it fail
	// with ErrAgain, or is skipped.
	//
	// InsertGrantsAgain is for the next tries, and skips existing packets. MySQL counts a skipped packet as inserted if a
	// proxy sets CLIENT_FOUND_ROWS, so after it the rows must be read back.
	InsertGrants, InsertGrantsAgain string
	// ReadGrants takes a Table of the columns campaign and packet; it returns the existing rows.
	ReadGrants string
	// ReadQuarantine takes a Table of the columns campaign and packet. It returns the grant, resolved_at, the resolution
	// and the reason of each of their rows in quarantine.
	ReadQuarantine string
	// InsertQuarantine takes a Table of the columns of quarantine except id, created_at, batch and the decision; then
	// created_at and batch.
	InsertQuarantine string
	// FindQuarantined takes a Table of the columns campaign, packet, shard, seq, user_id, amount and a number; it returns
	// the number, id, resolved_at and batch of the existing rows of quarantine.
	FindQuarantined string
	// CreditUsers takes a Table of the columns id, currency and amount of user accounts, sorted by id.
	CreditUsers string
	// AddToBases takes a Table of the columns id and amount of accounts. It adds to their bases.
	AddToBases string
	// InsertCodes takes a Table of the columns campaign, packet and code; a taken code or packet fails the whole
	// statement.
	InsertCodes string
	// ReadCodes takes a Table of the columns campaign and packet; it returns packet and code of the existing rows.
	ReadCodes string
	// InsertPending takes a Table of the columns of grants except batch, then owner, batch, and 1 if since must not be
	// after granted_at. InsertPendingAgain is to it what InsertGrantsAgain is to InsertGrants.
	InsertPending, InsertPendingAgain string
	// ReadPending takes a Table of the columns campaign and packet; it returns the columns of a pending row.
	ReadPending string
	// TakePending takes a Table of the columns campaign, packet, batch and the new batch, then the owner.
	TakePending string
	// DeletePending takes a Table of the column packet, then the campaign, the batch and asked_at, which may be 0 for any.
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
		"has_schema": &q.HasSchema, "ask_server": &q.AskServer, "refuse_newer": &q.RefuseNewer,
		"insert_grants": &q.InsertGrants, "insert_grants_again": &q.InsertGrantsAgain,
		"read_grants": &q.ReadGrants, "read_quarantine": &q.ReadQuarantine,
		"insert_quarantine": &q.InsertQuarantine, "find_quarantined": &q.FindQuarantined,
		"credit_users": &q.CreditUsers, "add_to_bases": &q.AddToBases, "set_archive_copy": &q.SetArchiveCopy,
		"insert_codes": &q.InsertCodes, "read_codes": &q.ReadCodes, "insert_pending": &q.InsertPending,
		"insert_pending_again": &q.InsertPendingAgain, "read_pending": &q.ReadPending,
		"take_pending": &q.TakePending, "delete_pending": &q.DeletePending, "insert_reserve": &q.InsertReserve,
		"insert_deployment": &q.InsertDeployment, "insert_disowned": &q.InsertDisowned,
		"insert_accepted_loss": &q.InsertAcceptedLoss, "insert_seal": &q.InsertSeal,
		"insert_control": &q.InsertControl, "insert_owed": &q.InsertOwed,
		"insert_once_claim": &q.InsertOnceClaim, "insert_journal": &q.InsertJournal,
		"add_to_account": &q.AddToAccount, "add_to_credit_account": &q.AddToCreditAccount,
		"add_to_fund": &q.AddToFund,
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
// faulty, and LoadQueries panics. The line "-- after: NAME" makes a statement the end of an earlier one.
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
			if after, end, ok := strings.Cut(sql, "\n"); ok && strings.HasPrefix(after, "-- after: ") {
				sql = *fields[strings.TrimPrefix(after, "-- after: ")] + "\n" + end
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

// partRows is the number of accounts in a part of PartsByID.
const partRows = 10_000

// PartsByID is Dialect.Parts by ranges of the accounts' ids.
func PartsByID(ctx context.Context, t Txn, fn func(where string, args ...any) error) error {
	for after := ""; ; {
		var last string
		err := t.Query(ctx, `SELECT COALESCE(MAX(id), '') FROM
			(SELECT id FROM account WHERE id > $1 ORDER BY id LIMIT $2) AS page`, []any{after, int64(partRows)},
			func(s Scan) error { return s(&last) })
		if err != nil || last == "" {
			return err
		}
		if err := fn(`id > $1 AND id <= $2 LIMIT $3`, after, last, int64(partRows)); err != nil {
			return err
		}
		after = last
	}
}
