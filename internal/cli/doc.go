// Package cli is the program hongbao: all of Hongbao in one binary. It plans, loads and ends campaigns, and grabs
// packets. It delivers grants to the ledger and to Kafka, repeats deliveries, and audits everything. `hongbao demo`
// shows it without any server.
//
// Each subcommand has one file; root.go lists them. A subcommand reads its flags, calls an operation of internal/ops,
// and prints the result.
//
// Every subcommand follows these rules:
//
//   - the answer goes to standard output; logs, progress and errors go to standard error;
//   - the exit code is one of the table in exits.go, and --json prints the answer as one document;
//   - SIGTERM and SIGINT drain: work takes no more grants, finishes those in flight, and hands the rest to other
//     workers;
//   - passwords and tokens come from the environment or from files only, and are never printed.
package cli
