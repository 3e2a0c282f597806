// Package app has the operations on a deployment that the commands, the administration API and the console share. It
// also has every rule that involves two stages. A front end calls a method of App and shows its result.
//
// The package promises:
//
//   - App connects to a server when a method first needs it. It refuses a server that `hongbao init` did not
//     initialize for this deployment. App.Shut closes all connections in reverse order.
//   - A method returns Go values and prints nothing. A result that a person must look at comes with a AttentionError. An
//     invalid request returns a UsageError before any change.
//   - Init and Migrate are the only methods that create tables, shards or a topic.
package app
