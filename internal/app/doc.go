// Package app has what a process opens: the configuration, Redis, the ledger, the sinks and the journal. The packages
// below internal/ops work on an App.
//
// The package promises:
//
//   - App connects to a server when a method first needs it. It refuses a server that `hongbao init` did not
//     initialize for this deployment. App.Shut closes all connections in reverse order.
//   - A method returns Go values and prints nothing. A result that a person must look at comes with an AttentionError.
//     An invalid request returns a UsageError before any change.
//   - Init and Migrate are the only methods that create tables, shards or a topic.
package app
