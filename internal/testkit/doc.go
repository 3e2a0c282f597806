// Package testkit runs real servers for tests, the soak and the benchmarks: Redis, PostgreSQL, MariaDB and Apache
// Kafka. Each server has a free port on loopback and a temporary folder. Tests can put a fault proxy in front of a
// server.
//
// A test that requests a server gets it or fails. Redis(t), Postgres(t), MariaDB(t) and Kafka(t) return a server that
// all tests of the process share. It starts when it is first used. Tests that share a server use separate key
// prefixes (Prefix), databases and topics (Topic). NewRedis, NewPostgres, NewMariaDB and NewKafka return a server for
// one test alone, which may kill, freeze and restart it. StartRedis, StartPostgres, StartMariaDB and StartKafka do
// the same without a testing.TB. NewRedisCluster returns three masters, each with a replica. NewRedisSentinels
// returns a primary with two replicas and three sentinels. StartProgram runs the program under test, or any other
// program.
//
// HONGBAO_TEST_REDIS, _POSTGRES, _MYSQL and _KAFKA name servers that the user runs; they are then the shared servers.
// Tests that need one more server, whose program is not installed, are skipped.
//
// With `go test -short`, tests that request a server are skipped. Examples can't be skipped; package example gives them
// servers in their process then.
//
// A package that uses testkit in its tests has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which stops every server at the end. Even without it no server outlives the tests, because each process has a
// watchdog process. The watchdog waits until the other end of a pipe closes, which its parent holds. The kernel
// closes that end however the parent dies. Then the watchdog kills every server and removes the folder.
//
// If a program is missing, the test fails and names scripts/setup.sh, which installs it. The package works on Unix
// only. It runs as an ordinary user and as root (PostgreSQL and MariaDB then run as the user postgres or nobody).
package testkit
