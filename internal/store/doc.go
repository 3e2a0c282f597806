// Package store is a deployment's data in Redis: types Store, Shard and Campaign, with one method for each script of
// package lua and the reads that go with them.
//
// A script of a shard begins with a line that names the run of the server that the shard was opened for. It is called
// by its SHA-1. If a server does not know it (NOSCRIPT), nothing happened. The server then gets the script only if
// the shard was opened for that server; else the shard freezes. Locks and push-once belong to no shard: their scripts
// are called by text if the server does not know them. Errors have a hongbao.Class, which Classify sets.
package store
