// Package local runs a whole deployment on this machine: Redis, Kafka, the ledger, and workers as child processes.
// `hongbao dev` and `hongbao demo` use it. Nothing else must be installed, and nothing remains except a folder that
// the caller named.
//
// Two parts cause deliberate faults. Workers.Kill ends a worker as a crash would, and all clients reach Redis and Kafka
// through the proxies of Servers. The soak test uses Workers, too.
package local
