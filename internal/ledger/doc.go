// Package ledger has the tables and the money: each grant is paid once, even if it comes twice, late or altered.
// Package settlement exports the part that a program needs to settle.
//
// A Ledger is an SQL database with the tables campaign, account, grants, transfer, refund, quarantine, code and credit
// (docs/ledger.md); PostgreSQL 13, MySQL 8.0.16 or MariaDB 10.6 or newer, or SQLite as the embedded default. Open
// checks the schema and refuses a server that may forget what it has confirmed. Migrate brings the schema up to date. A
// Settler is the hongbao.Handler in front of it.
//
// Its guarantees:
//
//   - A packet of a campaign is paid at most once, permanently: (campaign, packet) is the primary key of grants.
//   - A batch is one transaction: the grants that the ledger did not have yet, one credit for each of them, one debit
//     of the pool for the batch. Balances move by the inserted rows only, so a repeat changes nothing.
//   - Nothing is paid beyond what was funded: CHECK constraints in the database enforce it. The settler halves a batch
//     that violates one until the grants that overdraw are alone.
//   - A grant that contradicts the ledger, the plan or the funding goes to quarantine with both versions of the facts,
//     and is then handled: a person decides.
//   - A Fence that has returned sees every grant above its floor that an older epoch has paid, or will ever pay.
//
// A settler processes a batch in this order. It refuses what is malformed (Permanent). It sorts out what the ledger's
// campaigns and the plan do not know. It inserts the rest, reads back what was not inserted, and compares. It moves the
// balances, users first, the pool and the campaign last, right before COMMIT. It writes what contradicts to quarantine.
//
// Errors have a class. Until COMMIT is sent nothing has happened (Transient). After that, without a response, it is
// Unknown, and running the same batch again produces the right result. An unreachable database is an outage.
//
// It refuses what could lose money: PostgreSQL that is a standby, or with fsync or synchronous_commit off; MySQL that
// is read-only, or does not flush its log and its binary log at each commit, checked on every new connection; SQLite in
// memory, or without WAL and synchronous=FULL; a schema that is newer than the build.
package ledger
