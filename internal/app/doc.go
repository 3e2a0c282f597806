// Package app has the operations on a deployment: those of the commands, the administration API and the console, and
// every rule that joins two stages. A front end calls a method of App and shows its result.
//
// The package promises:
//
//   - App connects to a server when a method first needs it, and refuses a server that was not founded for this
//     deployment. App.Shut closes all connections in the reverse order.
//   - A method returns Go values and prints nothing. A result that a person must look at comes with a FoundError. An
//     invalid request returns a UsageError before any change.
//   - Init and MigrateBook are the only methods that create tables, shards or a topic.
package app
