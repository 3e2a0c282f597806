package ledger

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed sql
var sqlFiles embed.FS

// dialect is what differs between the databases.
type dialect struct {
	queries
	// migrations is a folder of the embedded ones; lock has the statements to run before any migration.
	migrations string
	lock       []string
	// pack makes the arguments that pass a table, as its columns ([]string, []int32, []int64), to one statement.
	pack func(columns ...any) ([]any, error)
	// orNothing, if not empty, makes an insert skip existing packets (see insertOnce).
	orNothing string
	// copies says that the first try asks once whether a person has decided about grants of a batch's campaigns. It
	// then assumes that all undecided grants are new, and copies them (see insertGrants).
	copies bool
	// byRow says that insertGrants and creditUsers have one row of ? each, and that stmt.rows says how often to repeat
	// it.
	byRow bool
	// share makes a SELECT lock its rows until the transaction ends. It is empty where only one transaction writes.
	share string
	// now is the database's clock in ms.
	now string
	// version is the server's version, or the library's.
	version string
	// denied takes names of tables, and returns the rights that the user lacks on them. It is empty where there is no
	// check.
	denied string
}

// queries are the statements of folder sql, where each has its name in snake case.
type queries struct {
	// hasSchema counts the table hongbao_schema.
	hasSchema string
	// refuseNewer is formatted with this build's version. It fails, or on SQLite returns a row, if a step of the schema
	// says that builds of this version can't work with it.
	refuseNewer string
	// insertGrants takes the packed columns of grants but batch, then batch.
	insertGrants string
	// readGrants takes the packed columns campaign and packet; it returns the existing rows.
	readGrants string
	// readQuarantine takes the packed columns campaign and packet. It returns the grant and resolved_at of each of
	// their rows in quarantine.
	readQuarantine string
	// insertQuarantine takes the packed columns of quarantine but id, created_at, batch and the decision; then
	// created_at and batch.
	insertQuarantine string
	// findQuarantined takes the packed columns campaign, packet, shard, seq, user_id, amount and a number; it returns
	// the number, id, resolved_at and batch of the existing rows of quarantine.
	findQuarantined string
	// creditUsers takes the packed columns id, currency and amount of user accounts, sorted by id.
	creditUsers string
	// insertCodes takes the packed columns campaign, packet and code; a taken code or packet fails the whole statement.
	insertCodes string
	// readCodes takes the packed columns campaign and packet; it returns packet and code of the existing rows.
	readCodes string
	// insertPending takes the packed columns of grants but batch, then owner, batch, and 1 if since must not be after
	// granted_at.
	insertPending string
	// readPending takes the packed columns campaign and packet; it returns pendingColumns, the age, and the time since
	// the last begin.
	readPending string
	// takePending takes the packed columns campaign, packet, batch and the new batch, then the owner.
	takePending string
	// deletePending takes the packed column packet, then the campaign and the batch, which may be 0 for any.
	deletePending string

	// These statements insert a row, and change nothing if its key is taken.
	insertReserve, insertDeployment, insertDisowned, insertAcceptedLoss, insertSeal, insertControl string
	// insertOnceClaim takes caller, idempotency_key, body_hash and claim; insertJournal takes the columns of journal.
	insertOnceClaim, insertJournal string
	// These statements add to a row, or insert it.
	addToAccount, addToCreditAccount, addToFund string
}

func (q *queries) byName() map[string]*string {
	return map[string]*string{
		"has_schema": &q.hasSchema, "refuse_newer": &q.refuseNewer, "insert_grants": &q.insertGrants, "read_grants": &q.readGrants,
		"read_quarantine": &q.readQuarantine, "insert_quarantine": &q.insertQuarantine,
		"find_quarantined": &q.findQuarantined,
		"credit_users":     &q.creditUsers, "insert_codes": &q.insertCodes, "read_codes": &q.readCodes,
		"insert_pending": &q.insertPending, "read_pending": &q.readPending, "take_pending": &q.takePending,
		"delete_pending": &q.deletePending, "insert_reserve": &q.insertReserve,
		"insert_deployment": &q.insertDeployment, "insert_disowned": &q.insertDisowned,
		"insert_accepted_loss": &q.insertAcceptedLoss, "insert_seal": &q.insertSeal,
		"insert_control":    &q.insertControl,
		"insert_once_claim": &q.insertOnceClaim, "insert_journal": &q.insertJournal, "add_to_account": &q.addToAccount,
		"add_to_credit_account": &q.addToCreditAccount, "add_to_fund": &q.addToFund,
	}
}

// loadQueries reads the statements of a database. Each must be in its files exactly once: anything else is a fault of
// this build.
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

// insertOnce makes an insert skip existing packets. The first try goes without: an existing packet makes it fail with
// errAgain, and the next try finds the packet. ON CONFLICT costs PostgreSQL a quarter of the insert's time. MySQL
// counts a skipped packet as inserted if a proxy sets CLIENT_FOUND_ROWS, so every later try must read the rows back.
// SQLite's texts have the suffix, and its count is right.
func (d *dialect) insertOnce(insert string, try int) string {
	if try > 0 {
		return insert + d.orNothing
	}
	return insert
}
