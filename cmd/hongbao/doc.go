// Command hongbao is all of Hongbao in one binary: it plans, loads and ends campaigns, grabs, brings grants to the
// ledger and to Kafka, does again what has to be done again, and audits all of it. `hongbao demo` shows it with no
// server at all.
//
// One file a subcommand; root.go has their list. A subcommand reads its flags, calls a method of internal/app, and
// prints what that returns. What joins two stages, and every rule about money, is in internal/app.
//
// What every subcommand promises:
//
//   - the answer goes to standard output, logs, progress and errors to standard error;
//   - the exit code is one of the table in exits.go, and --json prints the answer as one document;
//   - SIGTERM and SIGINT drain: work takes no more, finishes what is in flight, and hands the rest to other workers;
//   - passwords and tokens come from the environment or from files only, and are never printed.
package main
