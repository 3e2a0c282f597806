// Package ledger stores campaigns, accounts and grants in an SQL database. It pays each grant once, even if the grant
// is delivered twice, late or altered. Package settlement exports the part that other programs need to settle grants.
//
// A Ledger is an SQL database with the tables campaign, account, grants, transfer, refund, quarantine, code and credit
// (docs/ledger.md). Package db has what it asks of the database; Config.Database says which one it is. Package tables
// has what it shares with the packages beside it: books adds up what it has paid, access has the API keys. Open checks the
// schema and refuses a server that may lose confirmed transactions. Migrate brings the schema up to date. A Settler is
// the hongbao.Handler that writes grants to a Ledger.
//
// Its guarantees:
//
//   - A packet of a campaign is paid at most once, permanently: (campaign, packet) is the primary key of grants.
//   - A batch is one transaction. It inserts the grants that the ledger does not have yet, credits their users, and
//     debits the campaign's pool once. Balances change only by the inserted rows, so repeating a batch changes nothing.
//   - Nothing is paid beyond what was funded: CHECK constraints in the database enforce it. The settler halves a batch
//     that violates one until it has isolated the grants that overdraw.
//   - A grant that contradicts the ledger, the plan or the funding goes to quarantine with both versions of the facts,
//     and counts as handled: an operator decides about it.
//   - Once Fence has returned, table grants or pending has every grant above the floor that the ledger will ever pay
//     for an older epoch.
//
// A settler processes a batch in this order. It returns an error of ClassPermanent for each malformed
// grant. It sets aside grants that the
// ledger's campaigns or the plan do not have. It inserts the other grants, reads the existing rows of those that were
// not inserted, and compares. It updates the balances right before COMMIT: first the users, then the pools and the
// campaigns. Finally it writes the contradicting grants to quarantine.
//
// Errors have a class. An error before COMMIT was sent is Transient: nothing has changed. If COMMIT was sent and its
// response was lost, the error is Unknown; repeating the batch produces the right result. An unreachable database is an
// outage.
//
// Open refuses servers and settings that could lose money: PostgreSQL that is a standby, or with fsync or
// synchronous_commit off; MySQL that is read-only, or does not flush its log and its binary log at each commit, checked
// on every new connection; SQLite in memory, or without WAL and synchronous=FULL; a schema that is newer than the
// build.
package ledger
