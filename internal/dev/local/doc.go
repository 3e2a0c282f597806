// Package local runs a deployment of its own on this machine: Redis, Kafka, the ledger, and workers that are children
// of this process. `hongbao dev` and `hongbao demo` stand on it. Nothing needs to be installed, and nothing is left
// behind but a folder that the caller named.
//
// What can go wrong on purpose is reached by two parts: Workers.Kill ends a worker as a crash does, and Servers are what
// stands between the workers and their stores. Whoever makes a fault tells of it with Teller.Say.
package local
