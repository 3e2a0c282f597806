// Package audit compares Redis, the ledger and the Kafka topic, and lists every place where they disagree. Tests, the
// soak test and `hongbao audit` all call the same function, Run. It only reads.
//
// It checks
//
//   - each campaign in Redis: funded = granted + left, in packets and in money; every packet is exactly once in the
//     stock or in a receipt; no user has more than allowed; amounts are the planned ones;
//   - each shard: the seqs of all its events are 1, 2, 3, ... without a gap or a double; the stream has the same
//     grants as the receipts;
//   - the ledger: funded = granted + refunded + open, its own checks, and that it has the same set of (campaign,
//     packet, user, amount, shard, seq) as Redis, each once;
//   - a remote balance system that pays (Config.Remote): that it has credited each grant of the ledger to the same
//     user, with the same amount and currency;
//   - the topic: the same set again, each once;
//   - the codes of coupons: the same in Redis, the ledger and the topic;
//   - dead letters, the quarantine and pushes that no worker will finish.
//
// A live system changes while the audit reads it; it does not report these changes as differences. Run first notes each
// shard's seq, and each campaign's counts together with the seq at the same instant. Later grants are counted as newer
// and not judged. A grant is in flight if the sink's consumer group had not finished it when the sink was read. Such
// grants are counted and not judged either. To judge everything, wait until the system is quiet (Options.Wait).
//
// The audit needs about 25 bytes of memory for each packet of the audited campaigns, and 8 for a code. It reads a
// receipt a second time only to describe a difference. The report lists a limited number of differences of each kind,
// and counts all.
//
// docs/audit.md explains each kind of difference and what to do about it.
package audit
