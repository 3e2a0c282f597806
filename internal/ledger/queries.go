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
	// migrations is a folder of the embedded ones; lock is what to run before any of them.
	migrations string
	lock       []string
	// pack makes the arguments that carry a table, given by its columns ([]string, []int32, []int64), to one statement.
	pack func(columns ...any) ([]any, error)
	// orNothing, if not empty, makes an insert of packets leave those alone that are there (see insertOnce).
	orNothing string
	// copies: the first try asks once whether a person has decided about grants of a batch's campaigns, takes all that
	// are not decided for new ones, and copies them (see insertGrants).
	copies bool
	// byRow: insertGrants and creditUsers have one row of ? each, and take their columns by stmt.rows.
	byRow bool
	// share makes a SELECT keep its rows as they are until the transaction ends; empty where only one transaction writes.
	share string
	// now is the database's clock in ms.
	now string
	// version is that of the server, or of the library.
	version string
	// denied takes names of tables, and says what the user may not do with which; empty where nobody asks.
	denied string
}

// queries are the statements of folder sql, where each has its name in snake case.
type queries struct {
	// hasSchema counts the table hongbao_schema.
	hasSchema string
	// refuseNewer is formatted with this build's version. It fails, or on SQLite returns a row, if a step of the schema says
	// that builds of this version can't work with it.
	refuseNewer string
	// insertGrants takes the packed columns of grants but batch, then batch.
	insertGrants string
	// readGrants takes the packed columns campaign and packet; it gives the rows there are.
	readGrants string
	// readQuarantine takes the packed columns campaign and packet. It gives the grant and resolved_at of each of
	// their rows in quarantine.
	readQuarantine string
	// insertQuarantine takes the packed columns of quarantine but id, created_at, batch and the decision; then
	// created_at and batch.
	insertQuarantine string
	// findQuarantined takes the packed columns campaign, packet, shard, seq, user_id, amount and a number; it gives
	// the number, id, resolved_at and batch of the rows of quarantine there are.
	findQuarantined string
	// creditUsers takes the packed columns id, currency and amount of user accounts, sorted by id.
	creditUsers string
	// insertCodes takes the packed columns campaign, packet and code; a code or a packet that is taken fails the whole.
	insertCodes string
	// readCodes takes the packed columns campaign and packet; it gives packet and code of the rows there are.
	readCodes string
	// insertPending takes the packed columns of grants but batch, then owner, batch, and 1 if since is not to be
	// after granted_at.
	insertPending string
	// readPending takes the packed columns campaign and packet; it gives pendingColumns, the age, and for how long
	// nobody has begun.
	readPending string
	// takePending takes the packed columns campaign, packet, batch and the new batch, then the owner.
	takePending string
	// deletePending takes the packed column packet, then the campaign and the batch, which may be 0 for any.
	deletePending string

	// These insert a row, and change nothing if its key is taken.
	insertReserve, insertDeployment, insertDisowned, insertAcceptedLoss, insertSeal, insertControl string
	// insertOnceClaim takes caller, idempotency_key, body_hash and claim; insertJournal takes the columns of journal.
	insertOnceClaim, insertJournal string
	// These add to a row, or insert it.
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

// loadQueries reads the statements of a database. Each must stand once in its files: anything else is a fault of this
// build.
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
				panic(fmt.Sprintf("sql/%s.sql: statement %s is unknown or stands twice", file, name))
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

// insertOnce makes an insert leave alone the packets that are there. The first try goes without: a packet that is there
// fails it with errAgain, and the next try finds it. ON CONFLICT costs PostgreSQL a quarter of the insert's time. MySQL
// counts a packet that was left alone as inserted if a proxy sets CLIENT_FOUND_ROWS, so every later try must read the rows
// back. SQLite's texts have the suffix, and its count is right.
func (d *dialect) insertOnce(insert string, try int) string {
	if try > 0 {
		return insert + d.orNothing
	}
	return insert
}
