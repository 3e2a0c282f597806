// Package consumer delivers the events of a consumer group to a Handler. It does not know what the handler does.
//
// The pending list of Redis is the lease table and the retry schedule. No entry leaves it before it is done, so no
// entry can get lost between two structures. For each shard, in order:
//
//   - entries whose time has come are taken (parked ones whose backoff is over, those of workers that stopped
//     renewing), else new ones are read;
//   - while the handler works on them their lease is renewed; when it is lost, or the handler makes no progress, the
//     handler is cancelled and the worker writes nothing more;
//   - grants that succeeded get their done bits, and entries of which nothing is left are acked, in one script;
//   - an entry that is unreadable, or that the numbers of its shard refute (seq and epoch), becomes a dead letter as a
//     whole, and sets no done bit, so it takes no event's place;
//   - a grant that failed permanently, or too often, becomes a dead letter; an entry that may work later is parked, and
//     the others continue;
//   - while people have paused the sink (`hongbao sink pause`) the shard has no entries, and no grant loses an attempt;
//   - when the whole sink is down the shard waits with its entries, one probe at a time, and no grant loses an attempt;
//     nor does a grant whose claim a live worker has (hongbao.Heldf).
//
// Redis's own delivery count, never memory, counts the attempts. A failure of a whole batch is halved before it counts
// against one grant. A shard that meets a Broken error reports it and hands back its entries. It tries again more and
// more slowly, up to every 30 s; the other shards continue. Health returns the state of each shard. Run returns after
// the drain, and logs how many entries it left.
//
// Trimmer deletes from the stream the entries that every group has finished. While a declared group is missing, it
// deletes nothing.
package consumer
