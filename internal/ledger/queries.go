package ledger

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed sql
var sqlFiles embed.FS

// dialect has everything that differs between the databases.
type dialect struct {
	queries
	// migrations is the folder of the embedded migrations. lock has the statements that lock out other migrations.
	migrations string
	lock       []string
	// pack returns the arguments that pass a table to one statement. The table's columns are []string, []int32 or
	// []int64.
	pack func(columns ...any) ([]any, error)
	// orNothing, if not empty, is a suffix that makes an insert skip existing packets (see insertOnce).
	orNothing string
	// copies says that the first try assumes that all undecided grants are new, and uses COPY (see insertGrants).
	copies bool
	// byRow says that insertGrants and creditUsers have the placeholders of one row, which is repeated stmt.rows times.
	byRow bool
	// share is a suffix that makes a SELECT lock its rows until the transaction ends. It is empty if the database runs
	// only one write transaction at a time.
	share string
	// now is an expression for the database's clock, in milliseconds.
	now string
	// blocks is a query for the number of blocks of table account, if a query can select rows by the number of their
	// block.
	blocks string
	// version is an expression for the version of the server or of the SQLite library.
	version string
	// semiSync has the queries for the switches and for the states of semi-synchronous replication, if the database has
	// it. Their rows are a name and ON or OFF.
	semiSync [2]string
	// connections is an expression for the number of connections that the server accepts from ordinary users; 0 if it
	// has no limit.
	connections string
	// denied is a query for the rights that the user lacks on the named tables. It is empty if the database has no such
	// check.
	denied string
}

// queries are the statements in folder sql, where their names are in snake case.
type queries struct {
	// hasSchema counts the table hongbao_schema.
	hasSchema string
	// refuseNewer is formatted with this build's version. It fails, or on SQLite returns a row, if a step of the schema
	// does not allow builds of this version.
	refuseNewer string
	// insertGrants takes the packed columns of table grants except batch, then the batch.
	insertGrants string
	// readGrants takes the packed columns campaign and packet; it returns the existing rows.
	readGrants string
	// readQuarantine takes the packed columns campaign and packet. It returns the grant, resolved_at, the resolution
	// and the reason of each of their rows in quarantine.
	readQuarantine string
	// insertQuarantine takes the packed columns of quarantine except id, created_at, batch and the decision; then
	// created_at and batch.
	insertQuarantine string
	// findQuarantined takes the packed columns campaign, packet, shard, seq, user_id, amount and a number; it returns
	// the number, id, resolved_at and batch of the existing rows of quarantine.
	findQuarantined string
	// creditUsers takes the packed columns id, currency and amount of user accounts, sorted by id.
	creditUsers string
	// addToBases takes the packed columns id and amount of accounts. It adds to their bases.
	addToBases string
	// insertCodes takes the packed columns campaign, packet and code; a taken code or packet fails the whole statement.
	insertCodes string
	// readCodes takes the packed columns campaign and packet; it returns packet and code of the existing rows.
	readCodes string
	// insertPending takes the packed columns of table grants except batch, then owner, batch, and 1 if since must not be
	// after granted_at.
	insertPending string
	// readPending takes the packed columns campaign and packet; it returns the columns of scanPending.
	readPending string
	// takePending takes the packed columns campaign, packet, batch and the new batch, then the owner.
	takePending string
	// deletePending takes the packed column packet, then the campaign, the batch and asked_at, which may be 0 for any.
	deletePending string

	// These statements insert a row, or change nothing if its key exists.
	insertReserve, insertDeployment, insertDisowned, insertAcceptedLoss, insertSeal, insertControl, insertOwed string
	// insertOnceClaim takes caller, idempotency_key, body_hash and claim; insertJournal takes the columns of journal.
	insertOnceClaim, insertJournal string
	// These statements add to a row, or insert it if it does not exist.
	addToAccount, addToCreditAccount, addToFund string
	// setArchiveCopy takes the columns of archive_copy; it inserts or replaces the row.
	setArchiveCopy string
}

func (q *queries) byName() map[string]*string {
	return map[string]*string{
		"has_schema": &q.hasSchema, "refuse_newer": &q.refuseNewer, "insert_grants": &q.insertGrants, "read_grants": &q.readGrants,
		"read_quarantine": &q.readQuarantine, "insert_quarantine": &q.insertQuarantine,
		"find_quarantined": &q.findQuarantined,
		"credit_users":     &q.creditUsers, "add_to_bases": &q.addToBases, "set_archive_copy": &q.setArchiveCopy, "insert_codes": &q.insertCodes, "read_codes": &q.readCodes,
		"insert_pending": &q.insertPending, "read_pending": &q.readPending, "take_pending": &q.takePending,
		"delete_pending": &q.deletePending, "insert_reserve": &q.insertReserve,
		"insert_deployment": &q.insertDeployment, "insert_disowned": &q.insertDisowned,
		"insert_accepted_loss": &q.insertAcceptedLoss, "insert_seal": &q.insertSeal,
		"insert_control":    &q.insertControl,
		"insert_owed":       &q.insertOwed,
		"insert_once_claim": &q.insertOnceClaim, "insert_journal": &q.insertJournal, "add_to_account": &q.addToAccount,
		"add_to_credit_account": &q.addToCreditAccount, "add_to_fund": &q.addToFund,
	}
}

// loadQueries reads the statements of a database. Each must be in the files exactly once; otherwise the build is
// faulty, and loadQueries panics.
func loadQueries(files ...string) queries {
	var q queries
	fields := q.byName()
	for _, file := range files {
		text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
		if err != nil {
			panic(err)
		}
		for _, block := range strings.Split(string(text), "-- name: ")[1:] {
			name, sql, _ := strings.Cut(block, "\n")
			field := fields[name]
			if field == nil || *field != "" {
				panic(fmt.Sprintf("sql/%s.sql: statement %s is unknown or appears twice", file, name))
			}
			*field = withoutComments(sql)
		}
	}
	for name, field := range fields {
		if *field == "" {
			panic(fmt.Sprintf("%v: statement %s is missing", files, name))
		}
	}
	return q
}

func withoutComments(sql string) string {
	lines := strings.Split(sql, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "--") })
	return strings.TrimRight(strings.Join(lines, "\n"), ";\n")
}

// insertOnce makes an insert skip existing packets. The first try does not skip: an existing packet makes it fail with
// errAgain, and the next try skips the packet. This is faster, because ON CONFLICT costs PostgreSQL a quarter of the
// insert's time. MySQL counts a skipped packet as inserted if a proxy sets CLIENT_FOUND_ROWS, so every later try must
// read the rows back. SQLite's statements always skip, and their count is right.
func (d *dialect) insertOnce(insert string, try int) string {
	if try > 0 {
		return insert + d.orNothing
	}
	return insert
}
