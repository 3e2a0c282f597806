package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// moreRights grants the rights that MySQL needs besides db.Rights.
//
//go:embed rights.sql
var moreRights string

var (
	sqlComment = regexp.MustCompile(`(?m)^--.*$`)
	grantSQL   = regexp.MustCompile(`GRANT ([^;]+) ON ([^;]+) TO ([^;]+);`)
)

// grant is a statement that gives a role rights on a table.
type grant struct{ role, statement string }

// grants returns the statements that give the roles their rights, one for each table and role. MySQL grants rights
// on one table at a time, and a statement with a missing role fails. tables are all tables of the ledger.
func grants(tables []string) (list []grant) {
	for _, m := range grantSQL.FindAllStringSubmatch(sqlComment.ReplaceAllString(db.Rights+moreRights, ""), -1) {
		on := strings.Split(m[2], ",")
		if strings.HasPrefix(m[2], "ALL TABLES") {
			on = tables
		}
		for _, table := range on {
			for role := range strings.SplitSeq(m[3], ", ") {
				list = append(list, grant{role, fmt.Sprintf("GRANT %s ON `%s` TO %s", m[1], strings.TrimSpace(table), role)})
			}
		}
	}
	return list
}

// Grant gives the roles of deploy/rights/mysql.sql their rights on the tables. It skips roles that do not exist, and all
// roles if the user may not grant rights on the tables.
func (m *store) Grant(ctx context.Context) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return classify(fmt.Errorf("get a connection to MySQL: %w", err), false)
	}
	defer conn.Close()
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }() // its sql_mode is not that of the others
	if err := grantOn(ctx, conn); err != nil {
		return classify(fmt.Errorf("grant the roles of deploy/rights/mysql.sql their rights: %w", err), false)
	}
	return nil
}

// mayNotGrant are the errors of a GRANT to a role that does not exist, and of a user who may not grant rights.
var mayNotGrant = []uint16{1044, 1133, 1142, 1227, 1410}

func grantOn(ctx context.Context, conn *sql.Conn) error {
	// With this mode MariaDB creates no user for a role that does not exist. MySQL never does, and has no such mode.
	_, err := conn.ExecContext(ctx, `SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',NO_AUTO_CREATE_USER')`)
	var refused *mysql.MySQLError
	if err != nil && (!errors.As(err, &refused) || refused.Number != 1231) {
		return err
	}
	tables, err := tablesOn(ctx, conn)
	if err != nil {
		return err
	}
	skip := map[string]bool{} // decided by the first statement of each role
	for _, g := range grants(tables) {
		if skip[g.role] {
			continue
		}
		_, err := conn.ExecContext(ctx, g.statement)
		_, known := skip[g.role]
		skip[g.role] = !known && errors.As(err, &refused) && slices.Contains(mayNotGrant, refused.Number)
		if err != nil && !skip[g.role] {
			return fmt.Errorf("%s: %w", g.statement, err)
		}
	}
	return nil
}

func tablesOn(ctx context.Context, conn *sql.Conn) (all []string, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()
		ORDER BY table_name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		all = append(all, table)
	}
	return all, rows.Err()
}
