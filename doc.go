// Package hongbao has the types of Hongbao, which runs red-packet rains, coupon rushes and flash giveaways. Each grant
// is paid exactly once and announced exactly once. The package imports only the standard library, and all other
// packages use its types.
//
// These packages handle a grant, in this order:
//
//   - campaign plans the packets of a campaign from a seed and publishes a hash of the plan. internal/store/load loads
//     the packets into the stock of a Redis shard.
//   - deployment opens what producer, consumer and dedup work on: Redis, with the deployment's id, prefix and shards.
//   - producer collects up to 128 waiting grabs of a campaign for one call of lua/grab.lua. The script decides them in
//     one atomic step: it checks receipts and limits, takes packets from the stock, and writes one entry to the shard's
//     stream. internal/front/serve accepts grabs over HTTP.
//   - consumer delivers the entries to the Handler of a consumer group. It has leases, parks entries for retries, and
//     writes dead letters. Its ack also sets the done bit of each grant.
//   - settlement is the Handler that books each grant in the ledger exactly once: one debit, one credit, one row
//     (internal/ledger). internal/sinks/remote credits users in another balance system over HTTP, and
//     internal/front/bank is such a system.
//   - internal/sinks/publish is the Handler that writes each grant to a Kafka topic once. Claims, which internal/store
//     keeps, prevent further copies.
//   - subscriber reads the topic for other teams, and applies the effect of each grant once. topic defines the records.
//   - internal/operate/closing ends the campaign: it writes a close entry, refunds the amount that no user got, and
//     deletes the campaign from Redis. A named lock of internal/store ensures that only one process does so.
//   - internal/operate/replay delivers grants again, from the stream or from the ledger.
//   - internal/operate/deadletter lists dead letters, which an operator requeues or drops.
//   - internal/operate/audit compares Redis, the ledger and the topic. It checks that funded = granted + left, and
//     that a refund returned what was left.
//
// An Outcome is the answer to a grab. A refusal is an Outcome, not an error. Errors have a Class that says whether
// something happened and what the caller should do.
package hongbao
