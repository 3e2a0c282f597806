// Package testkit runs real servers for tests, the soak and the benchmarks: Redis, PostgreSQL, MariaDB and Apache
// Kafka, each on a free port of the loopback and in a temporary folder, and puts a fault proxy in front of them when
// asked.
//
// A test asks for what it needs and gets it, or fails: Redis(t), Postgres(t), MariaDB(t) and Kafka(t) give the
// process's shared server, which starts at first use; Prefix, the fresh database and Topic keep tests that share it
// apart. NewRedis, NewPostgres, NewMariaDB and NewKafka give a server of the test's own that it may kill, freeze and
// restart. StartRedis, StartPostgres, StartMariaDB and StartKafka are the same without a testing.TB. NewRedisCluster is
// three masters, each with a replica; NewRedisSentinels is a primary with two replicas that three sentinels watch.
// StartProgram runs the program under test, or any other, beside them.
//
// Under `go test -short` a test that asks for a server is skipped.
//
// A package whose tests use it has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which stops every server at the end. Nothing is left behind without it either: a watchdog process, one per process,
// waits for its parent's end of a pipe to close, which happens however the parent ends, kills every server and
// removes the folder.
//
// Missing programs fail the test with the way to get them: scripts/setup.sh. The package needs a Unix; it works as an
// ordinary user and as root (PostgreSQL and MariaDB then run as user postgres, or nobody).
package testkit
