// Package local runs a deployment of its own on this machine: Redis, Kafka, the ledger, and workers that are children
// of this process. `hongbao dev` and `hongbao demo` use it. Nothing needs to be installed, and nothing is left behind
// except a folder that the caller named.
//
// Two parts cause deliberate faults. Workers.Kill ends a worker as a crash would, and all clients reach Redis and Kafka
// through the proxies of Servers. The soak test uses Workers, too.
package local
