package ledger

import (
	"testing"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Settings with which MySQL refuses or changes tables, and a user with a password and without TLS. MySQL then
// encrypts the password with its RSA key, by caching_sha2_password.
func TestStrictMySQL(t *testing.T) {
	t.Parallel()
	server := testkit.NewMySQL(t, testkit.MariaDBOptions{Settings: map[string]string{
		"sql_require_primary_key": "on", "sql_generate_invisible_primary_key": "on"}})
	name := server.Database(t)
	execute(t, mariadb(t, server.AdminDSN(name)),
		"ALTER USER hongbao@'%' IDENTIFIED WITH caching_sha2_password BY 'secret'")
	f := newFixture(t, testMariaDB("hongbao:secret@tcp("+server.Addr+")/"+name))
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}
