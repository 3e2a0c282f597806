package test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// roles are the users of the ledger's database that run a process, in the order of the columns of the table.
var roles = []string{"hongbao_serve", "hongbao_work", "hongbao_control"}

// rightsOf are statements, and for each of roles whether it may run the statement. docs/operations.md has this table.
var rightsOf = []struct {
	what, statement string
	may             [3]bool
}{
	{"read seeds", "SELECT seed FROM campaign", [3]bool{false, true, true}},
	{"read seeds of top-ups", "SELECT seed FROM generation", [3]bool{false, true, true}},
	{"read receipts and codes", "SELECT user_id, (SELECT code FROM code LIMIT 1) FROM grants", [3]bool{true, true, true}},
	{"read accounts", "SELECT balance FROM account", [3]bool{false, true, true}},
	{"read the journal", "SELECT who FROM journal", [3]bool{false, true, true}},
	{"read the hashes of keys", "SELECT hash FROM api_key", [3]bool{true, false, true}},
	{"create keys", "INSERT INTO api_key SELECT * FROM api_key WHERE false", [3]bool{false, false, true}},
	{"end sessions", "DELETE FROM console_session WHERE false", [3]bool{false, false, true}},
	{"record jobs", "INSERT INTO job SELECT * FROM job WHERE false; UPDATE job SET done = 0 WHERE false; DELETE FROM job WHERE false",
		[3]bool{false, false, true}},
	{"create campaigns", "INSERT INTO campaign SELECT * FROM campaign WHERE false", [3]bool{false, false, true}},
	{"pay a grant", "INSERT INTO grants SELECT * FROM grants WHERE false", [3]bool{false, true, true}},
	{"open a frozen shard", `UPDATE shard SET epoch = epoch, token = token WHERE false;
		INSERT INTO fence SELECT * FROM fence WHERE false; UPDATE fence SET opened_at = opened_at, note = note WHERE false;
		INSERT INTO control SELECT * FROM control WHERE false; UPDATE control SET setting = setting, rev = rev WHERE false`,
		[3]bool{false, true, true}},
	{"record what a sink owes", `INSERT INTO owed SELECT * FROM owed WHERE false;
		UPDATE owed SET first_seq = first_seq, last_seq = last_seq, ended_at = ended_at WHERE false; DELETE FROM owed WHERE false`,
		[3]bool{false, true, false}},
	{"ask a remote for a credit", `INSERT INTO pending SELECT * FROM pending WHERE false;
		UPDATE pending SET owner = owner, batch = batch, asked_at = asked_at WHERE false; DELETE FROM pending WHERE false`,
		[3]bool{false, true, true}},
	{"refund", "INSERT INTO refund SELECT * FROM refund WHERE false", [3]bool{false, false, true}},
	{"count a refund", "UPDATE campaign SET refunded = refunded WHERE false", [3]bool{false, false, true}},
	{"change a grant", "UPDATE grants SET amount = amount WHERE false", [3]bool{false, false, false}},
	{"seal campaigns", `UPDATE seal SET based = based WHERE false; UPDATE account SET base = base WHERE false;
		INSERT INTO seal_seqs SELECT * FROM seal_seqs WHERE false; DELETE FROM seal_seqs WHERE false;
		INSERT INTO topic_base SELECT * FROM topic_base WHERE false; DELETE FROM topic_base WHERE false`,
		[3]bool{false, false, true}},
	{"delete archived grants", "DELETE FROM grants WHERE false", [3]bool{false, false, true}},
	{"write into the journal", "INSERT INTO journal VALUES ('x', 1, '', '', '', '', '', '', '{}') ON CONFLICT (id) DO NOTHING",
		[3]bool{true, true, true}},
	{"change the journal", "UPDATE journal SET who = 'x' WHERE false", [3]bool{false, false, false}},
	{"delete from the journal", "DELETE FROM journal WHERE false", [3]bool{false, false, false}},
	{"change a transfer", "UPDATE transfer SET amount = amount WHERE false", [3]bool{false, false, false}},
	{"delete a transfer", "DELETE FROM transfer WHERE false", [3]bool{false, false, false}},
	{"change a refund", "UPDATE refund SET amount = amount WHERE false", [3]bool{false, false, false}},
	{"delete a refund", "DELETE FROM refund WHERE false", [3]bool{false, false, false}},
	{"change the tables", "ALTER TABLE grants ADD x integer", [3]bool{false, false, false}},
	{"empty a table", "TRUNCATE grants", [3]bool{false, false, false}},
	{"create a table", "CREATE TABLE x (n integer)", [3]bool{false, false, false}},
	{"create a role", "CREATE ROLE x", [3]bool{false, false, false}},
}

// moreInMySQL are statements that MySQL allows more roles than PostgreSQL: internal/ledger/db/mysql/rights.sql says why.
var moreInMySQL = map[string][3]bool{"change a grant": {false, true, true}, "change the journal": {true, true, true}}

// denied requires that the i-th role may run exactly the statements that rightsOf allows it. Each other statement fails
// with an error that contains the text.
func (g *guarded) denied(i int, text string, exec func(statement string) error) {
	for _, r := range rightsOf {
		err := exec(r.statement)
		if r.may[i] || g.driver == "mysql" && moreInMySQL[r.what][i] {
			require.NoError(g.t, err, "%s: %s", roles[i], r.what)
		} else {
			require.ErrorContains(g.t, err, text, "%s: %s", roles[i], r.what)
		}
	}
}

// docs/operations.md has the table of rightsOf.
func TestRightsInTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	yes := map[bool]string{true: "yes", false: ""}
	table := "| may it | " + strings.Join(roles, " | ") + " |\n|---|---|---|---|\n"
	for _, r := range rightsOf {
		table += "| " + r.what + " |"
		for _, may := range r.may {
			table += strings.TrimRight(" "+yes[may], " ") + " |"
		}
		table += "\n"
	}
	require.Contains(t, string(text), table)
}
