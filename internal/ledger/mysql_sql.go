package ledger

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// mysqlDialect sends a table as one JSON array of rows, as SQLite's does. The columns' types are those of the tables, so
// that keys are found by their index; a value that does not fit is an error. STRAIGHT_JOIN: one look-up by the primary
// key a row, whatever the optimizer thinks of the size of a JSON text.
var mysqlDialect = dialect{
	migrations: "migrations/mysql",
	hasSchema:  `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'hongbao_schema'`,
	pack:       packJSON,
	insertGrants: `INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
		SELECT k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at, $2
		FROM ` + mysqlRows("campaign text", "packet", "user_id text", "amount", "shard", "seq", "epoch", "request_id text",
		"granted_at"),
	readGrants: `SELECT g.campaign, g.packet, g.user_id, g.amount, g.shard, g.seq, g.epoch, g.request_id, g.granted_at, g.batch
		FROM ` + mysqlRows("campaign text", "packet") + `
		STRAIGHT_JOIN grants AS g ON g.campaign = k.campaign AND g.packet = k.packet`,
	readQuarantine: `SELECT q.campaign, q.packet, q.user_id, q.amount, q.shard, q.seq, q.epoch, q.request_id, q.granted_at, q.resolved_at
		FROM ` + mysqlRows("campaign text", "packet") + `
		STRAIGHT_JOIN quarantine AS q ON q.campaign = k.campaign AND q.packet = k.packet`,
	insertQuarantine: `INSERT INTO quarantine (` + quarantineColumns + `, batch)
		SELECT k.reason, k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at, k.entry_id,
			k.has, k.has_user_id, k.has_amount, k.has_shard, k.has_seq, k.has_epoch, k.has_request_id, k.has_granted_at, $2, $3
		FROM ` + mysqlRows("reason text", "campaign text", "packet", "user_id text", "amount", "shard", "seq", "epoch", "request_id text",
		"granted_at", "entry_id text", "has", "has_user_id text", "has_amount", "has_shard", "has_seq", "has_epoch",
		"has_request_id text", "has_granted_at") + ` ON CONFLICT ` + onceAside + ` DO NOTHING`,
	readAside: `SELECT k.n, q.id, q.resolved_at, q.batch FROM ` + mysqlRows("campaign text", "packet", "shard", "seq", "user_id text",
		"amount", "n") + `
		STRAIGHT_JOIN quarantine AS q ON q.campaign = k.campaign AND q.packet = k.packet AND q.shard = k.shard AND q.seq = k.seq
			AND q.user_id = k.user_id AND q.amount = k.amount`,
	credit: `INSERT INTO account (id, kind, currency, balance) SELECT k.id, 'user', k.currency, k.amount
		FROM ` + mysqlRows("id text", "currency text", "amount") + `
		ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`,
	insertCodes: `INSERT INTO code (campaign, packet, code) SELECT k.campaign, k.packet, k.code
		FROM ` + mysqlRows("campaign text", "packet", "code text"),
	readCodes: `SELECT c.packet, c.code FROM ` + mysqlRows("campaign text", "packet") + `
		STRAIGHT_JOIN code AS c ON c.campaign = k.campaign AND c.packet = k.packet`,
	now: mysqlNow,
	insertPending: `INSERT INTO pending (` + pendingColumns + `since, asked_at)
		SELECT k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at, $2, $3,
			CASE WHEN $4 = 1 THEN LEAST(k.granted_at, ` + mysqlNow + `) ELSE ` + mysqlNow + ` END, ` + mysqlNow + `
		FROM ` + mysqlRows("campaign text", "packet", "user_id text", "amount", "shard", "seq", "epoch", "request_id text",
		"granted_at"),
	readPending: `SELECT p.campaign, p.packet, p.user_id, p.amount, p.shard, p.seq, p.epoch, p.request_id, p.granted_at, p.owner, p.batch,
			` + mysqlNow + ` - p.since, ` + mysqlNow + ` - p.asked_at FROM ` + mysqlRows("campaign text", "packet") + `
		STRAIGHT_JOIN pending AS p ON p.campaign = k.campaign AND p.packet = k.packet`,
	takePending: `UPDATE ` + mysqlRows("campaign text", "packet", "batch", "now") + `
		STRAIGHT_JOIN pending AS p ON p.campaign = k.campaign AND p.packet = k.packet AND p.batch = k.batch
		SET p.owner = $2, p.batch = k.now, p.asked_at = ` + mysqlNow,
	deletePending: `DELETE p FROM ` + mysqlRows("packet") + `
		STRAIGHT_JOIN pending AS p ON p.campaign = $2 AND p.packet = k.packet AND $3 IN (0, p.batch)`,
}

// mysqlNow does not depend on the session's time zone, whose clock may be set back.
const mysqlNow = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`

// mysqlRows makes table k of the packed columns in $1; they are numbers but where it says text.
func mysqlRows(columns ...string) string {
	for i, c := range columns {
		name, text := strings.CutSuffix(c, " text")
		kind := "bigint"
		if text {
			kind = "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
		}
		columns[i] = fmt.Sprintf("%s %s PATH '$[%d]' ERROR ON EMPTY ERROR ON ERROR", name, kind, i)
	}
	return "JSON_TABLE($1, '$[*]' COLUMNS (" + strings.Join(columns, ", ") + ")) AS k"
}

// mysqlStatement is a statement in MySQL's words: its n-th ? takes the argument with the index order[n].
type mysqlStatement struct {
	text  string
	order []int
}

func (s *mysqlStatement) args(args []any) []any {
	list := make([]any, len(s.order))
	for i, n := range s.order {
		list[i] = args[n]
	}
	return list
}

var (
	mysqlPlaceholder = regexp.MustCompile(`\$(\d+)`)
	mysqlInsert      = regexp.MustCompile(`^\s*INSERT INTO (\w+)\s*\((\w+)`)
	mysqlNothing     = regexp.MustCompile(`ON CONFLICT\s+(\([^)]*\)\s+)?DO NOTHING`)
	mysqlUpdate      = regexp.MustCompile(`ON CONFLICT\s+\([^)]*\)\s+DO UPDATE SET`)
	mysqlExcluded    = regexp.MustCompile(`excluded\.(\w+)`)
	mysqlStatements  = mysqlCache{statements: make(map[string]*mysqlStatement)}
)

// mysqlCache has the statements by the texts they were made of: as many as this package has.
type mysqlCache struct {
	mu         sync.RWMutex
	statements map[string]*mysqlStatement
}

func (c *mysqlCache) get(sql string) *mysqlStatement {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.statements[sql]
}

func (c *mysqlCache) put(sql string, s *mysqlStatement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements[sql] = s
}

// mysqlTranslate puts a statement of this package into MySQL's words. Four things differ: placeholders, the type of a cast,
// what to do on a conflict, and the row that was not inserted. "Do nothing" is an update of a column to what it is, which
// counts as no change; INSERT IGNORE would also turn errors into wrong rows. || joins texts by the session's sql_mode.
func mysqlTranslate(sql string) *mysqlStatement {
	if s := mysqlStatements.get(sql); s != nil {
		return s
	}
	s := &mysqlStatement{}
	s.text = mysqlPlaceholder.ReplaceAllStringFunc(sql, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // digits only
		s.order = append(s.order, n-1)
		return "?"
	})
	if into := mysqlInsert.FindStringSubmatch(s.text); into != nil {
		s.text = mysqlNothing.ReplaceAllLiteralString(s.text, "ON DUPLICATE KEY UPDATE "+into[2]+" = "+into[1]+"."+into[2])
		s.text = mysqlUpdate.ReplaceAllString(s.text, "ON DUPLICATE KEY UPDATE")
		s.text = mysqlExcluded.ReplaceAllString(s.text, "VALUES(${1})")
	}
	s.text = strings.ReplaceAll(s.text, " AS bigint)", " AS SIGNED)")
	mysqlStatements.put(sql, s)
	return s
}
