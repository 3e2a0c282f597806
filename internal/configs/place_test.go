package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Place contains the servers and the database, but no password.
func TestPlaceHasNoSecret(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"": "none (ledger.dsn is not set)", "/var/lib/ledger.db": "d /var/lib/ledger.db",
		"postgres://ann:pa55@db:5432/money?sslmode=verify-full&password=pa55": "d db:5432/money",
		"postgres://ann:pa%zz55@db/money":                                     "d",
		"ann:pa55@tcp(db:3306)/money?tls=true":                                "d tcp(db:3306)/money",
		"ann:pa@55@tcp(db:3306)/money":                                        "d tcp(db:3306)/money",
		"host=db port=5432 dbname=money password=pa55 user=ann":               "d db 5432 money",
	} {
		var c Config
		c.Deployment.ID, c.Redis.Addrs, c.Ledger.Driver, c.Ledger.DSN = "rain", []string{"r1:6379", "r2:6379"}, "d", Secret(dsn)
		require.Equal(t, "deployment rain: Redis r1:6379, r2:6379, ledger "+want, c.Place())
		require.NotContains(t, c.Place(), "55@")
		require.NotContains(t, c.Place(), "pa55")
	}
}
