// Package store reads and writes a deployment's data in Redis. Its types Store, Shard and Campaign have one method
// for each script of package lua, and methods that only read.
//
// The first line of a shard's script names the server run that the shard was opened for. So the script's SHA-1 is
// different for each run. Scripts are called by SHA-1. A server that does not know the SHA-1 answers NOSCRIPT and
// does nothing. If the shard was opened for this server run, the script is then loaded; otherwise the shard freezes.
// The scripts for locks and push-once belong to no shard. They are sent as text if the server does not know them.
// Errors have a hongbao.Class, which Classify sets.
package store
