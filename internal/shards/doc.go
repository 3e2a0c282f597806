// Package shards runs the scripts of package lua: type Shard has one method a script, and the reads that go with them.
//
// Scripts are called by their SHA-1 and, if the server does not know them (NOSCRIPT, so nothing happened), by text.
// Errors carry a hongbao.Class, which Classify sets.
package shards
