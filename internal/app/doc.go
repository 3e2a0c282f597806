// Package app is Hongbao put together: it opens the servers that the configuration names, wires the sinks to them, and
// holds every rule that joins two stages. Package main of cmd/hongbao reads flags, calls a method of App, and prints
// what it returns.
//
// What it promises:
//
//   - A server is opened when a method first needs it, and refused unless it was founded as this deployment's; App.Shut
//     closes all of them in the reverse order.
//   - A method returns Go values and prints nothing. An answer that a person must look at comes with a FoundError, a
//     question that makes no sense is a UsageError, and was refused before anything was changed.
//   - Init and AddClient are the only methods that create tables, shards or a topic.
package app
