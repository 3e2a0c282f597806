package ledger

import "context"

// stmt is one statement that returns no rows. Placeholders are $1, $2, ... on every database, and ON CONFLICT is written as
// for PostgreSQL and SQLite: see mysqlTranslate. RETURNING is not to be used, MySQL has none.
type stmt struct {
	sql  string
	args []any
	// changed, if not nil, gets the number of rows that the statement changed. On MySQL a row that is set to what it is
	// does not count.
	changed *int64
}

// scan reads the current row.
type scan func(dest ...any) error

// txn is a transaction that runs.
type txn interface {
	// run executes the statements in order, in one round trip where the database can.
	run(ctx context.Context, stmts ...stmt) error
	// query calls row for each row of the result.
	query(ctx context.Context, sql string, args []any, row func(scan) error) error
}

// store is a database. Its errors have a class; errAgain and errOverdraw are in their chains where they apply.
type store interface {
	// write runs fn in a transaction at READ COMMITTED or stricter, then the statements that fn gives, and commits:
	// those and COMMIT go out together, so the locks they take are held for one round trip. An error means that
	// nothing was committed, unless its class is Unknown.
	write(ctx context.Context, fn func(txn) ([]stmt, error)) error
	// read runs fn on one snapshot.
	read(ctx context.Context, fn func(txn) error) error
	// close waits for what runs.
	close() error
}

// dialect is the SQL that differs between the databases.
type dialect struct {
	// migrations is a folder of the embedded ones; lock is what to run before any of them.
	migrations string
	lock       []string
	// hasSchema counts the table hongbao_schema.
	hasSchema string
	// pack makes the arguments that carry a table, given by its columns ([]string or []int64), to one statement.
	pack func(columns ...any) ([]any, error)
	// plainFirst: an insert without ON CONFLICT is worth trying first. See insertOnce.
	plainFirst bool
	// insertGrants takes the packed columns of grants but batch, then batch.
	insertGrants string
	// readGrants takes the packed columns campaign and packet; it gives the rows there are.
	readGrants string
	// readQuarantine takes the packed columns campaign and packet; it gives what came and resolved_at, of every row of quarantine there is.
	readQuarantine string
	// insertQuarantine takes the packed columns of quarantine but id, created_at, batch and the decision; then created_at and batch.
	insertQuarantine string
	// readAside takes the packed columns campaign, packet, shard, seq, user_id, amount and a number; it gives the number, id,
	// resolved_at and batch of the rows of quarantine there are.
	readAside string
	// credit takes the packed columns id, currency and amount of user accounts, sorted by id.
	credit string
	// insertCodes takes the packed columns campaign, packet and code; a code or a packet that is taken fails the whole.
	insertCodes string
	// readCodes takes the packed columns campaign and packet; it gives packet and code of the rows there are.
	readCodes string
	// now is the database's clock in ms.
	now string
	// insertPending takes the packed columns of grants but batch, then owner, batch, and 1 if since is not to be after granted_at.
	insertPending string
	// readPending takes the packed columns campaign and packet; it gives pendingColumns, the age, and for how long nobody has begun.
	readPending string
	// takePending takes the packed columns campaign, packet, batch and the new batch, then the owner.
	takePending string
	// deletePending takes the packed column packet, then the campaign and the batch, which may be 0 for any.
	deletePending string
}

// insertOnce makes an insert leave alone the packets that are there. That costs PostgreSQL a quarter of the insert's time, so the first try
// goes without: a packet that is there fails it with errAgain, and the next try finds it.
func (d *dialect) insertOnce(insert string, try int) string {
	if d.plainFirst && try == 0 {
		return insert
	}
	return insert + ` ON CONFLICT (campaign, packet) DO NOTHING`
}
