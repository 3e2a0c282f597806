// Package app has the operations on a deployment: those of the commands, the administration API and the console, and
// every rule that joins two stages. A front end calls a method of App and shows its result.
//
// The package promises:
//
//   - App reaches a server when a method first needs it, and refuses one that was not founded as this deployment's.
//     App.Shut closes all of them in the reverse order.
//   - A method returns Go values and prints nothing. An answer that a person must look at comes with a FoundError. A
//     request that makes no sense is a UsageError, refused before any change.
//   - Init and AddClient are the only methods that create tables, shards or a topic.
package app
