// Package hongbao holds the words of Hongbao: red-packet rains, coupon rushes and flash giveaways, paid exactly once
// and announced exactly once. It imports the standard library only; every other package speaks in its types.
//
// The life of one grab, in order:
//
//   - campaign plans the packets (a seed, a deterministic split, a shuffle) and their hash; internal/store/load loads
//     them into the stock of a Redis shard;
//   - producer collects the grabs that wait, up to 128 of one campaign, and has lua/grab.lua decide them in one
//     atomic step: receipts, limits, stock, and one entry in the shard's stream of events; internal/front/serve takes
//     grabs over HTTP;
//   - consumer brings the entries from a consumer group to a Handler, with a lease, parking, dead letters and an ack
//     that marks each grant's done bit;
//   - settlement is the Handler that makes the ledger agree with the grant: one debit, one credit, one row permanently
//     (internal/ledger); internal/sink/remote is one that asks somebody else's balance system over HTTP, and
//     internal/front/bank serves such a system;
//   - internal/sink/publish has the Handler that puts the grant into a Kafka topic, one copy each, by the claims that
//     internal/store keeps;
//   - subscriber reads that topic for other teams and has each grant's effect once; topic says how a record looks;
//   - internal/operate/closing ends the campaign: it writes a close entry, refunds once what no user got, and deletes
//     the campaign from Redis;
//     internal/store has the named locks under which one process at a time does so;
//   - internal/operate/replay delivers grants once more, from the stream or the ledger;
//   - internal/operate/deadletter reads dead letters, and ends them by a person's decision;
//   - internal/operate/audit compares Redis, the ledger and the topic: funded = granted + left + refunded, everywhere.
//
// Words that are values, not errors: an Outcome is the answer to a grab, and a refusal is an Outcome. Errors carry a
// Class that says what the caller has to do.
package hongbao
