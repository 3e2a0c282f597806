// Package hongbao has the types of Hongbao: red-packet rains, coupon rushes and flash giveaways, paid exactly once
// and announced exactly once. It imports the standard library only. Every other package uses its types.
//
// The life of one grab, in order:
//
//   - campaign plans the packets (a seed, a deterministic split, a shuffle) and their hash; internal/store/load loads
//     them into the stock of a Redis shard;
//   - producer collects the waiting grabs, up to 128 of one campaign, and lets lua/grab.lua decide them in one atomic
//     step: receipts, limits, stock, and one entry in the shard's stream of events; internal/front/serve takes grabs
//     over HTTP;
//   - consumer delivers the entries of a consumer group to a Handler, with a lease, parking, dead letters and an ack
//     that marks each grant's done bit;
//   - settlement is the Handler that brings the ledger in agreement with the grant, exactly once: one debit, one
//     credit, one row (internal/ledger); internal/sink/remote asks another balance system over HTTP, and
//     internal/front/bank serves such a system;
//   - internal/sink/publish has the Handler that writes the grant to a Kafka topic, one copy each, by the claims that
//     internal/store keeps;
//   - subscriber reads that topic for other teams and applies each grant's effect once; topic defines the records;
//   - internal/operate/closing ends the campaign: it writes a close entry, refunds once the amount that no user got,
//     and deletes the campaign from Redis; internal/store has the named locks, under which one process at a time does
//     so;
//   - internal/operate/replay delivers grants again, from the stream or the ledger;
//   - internal/operate/deadletter reads dead letters, and ends them by a person's decision;
//   - internal/operate/audit compares Redis, the ledger and the topic: funded = granted + left + refunded,
//     everywhere.
//
// An Outcome is the answer to a grab. A refusal is an Outcome, not an error. An error has a Class that says what the
// caller has to do.
package hongbao
