// Package testkit runs real servers for tests, the soak and the benchmarks: Redis, PostgreSQL, MariaDB and Apache
// Kafka. Each is on a free port of the loopback and in a temporary folder. Tests can put a fault proxy in front of
// them.
//
// A test asks for a server and gets it, or fails. Redis(t), Postgres(t), MariaDB(t) and Kafka(t) return the process's
// shared server, which starts at first use. Prefix, the new database and Topic separate tests that share a server.
// NewRedis, NewPostgres, NewMariaDB and NewKafka return a server of the test's own, which the test may kill, freeze
// and restart. StartRedis, StartPostgres, StartMariaDB and StartKafka are the same without a testing.TB.
// NewRedisCluster returns three masters, each with a replica. NewRedisSentinels returns a primary with two replicas
// that three sentinels watch. StartProgram runs the program under test, or any other program.
//
// HONGBAO_TEST_REDIS, _POSTGRES, _MYSQL and _KAFKA name servers that the user runs; they are then the shared servers.
// Tests that need one more server, whose program is not installed, are skipped.
//
// `go test -short` skips a test that asks for a server.
//
// A package that uses testkit in its tests has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which stops every server at the end. Without it, no server remains either. Each process has a watchdog process,
// which waits until its parent's end of a pipe closes. That happens however the parent ends. Then the watchdog kills
// every server and removes the folder.
//
// If a program is missing, the test fails and names scripts/setup.sh, which installs it. The package needs a Unix. It
// runs as an ordinary user and as root (PostgreSQL and MariaDB then run as the user postgres or nobody).
package testkit
