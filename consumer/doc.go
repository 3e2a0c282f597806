// Package consumer brings the events of a consumer group to a Handler. It does not know what the handler does.
//
// The pending list of Redis is the lease table and the retry schedule: nothing leaves it until it is done, so nothing
// can fall between two structures. For each shard, in order:
//
//   - entries whose time has come are taken (parked ones whose backoff is over, those of workers that stopped
//     renewing), else new ones are read;
//   - while the handler is at them their lease is renewed; when it is lost, or the handler makes no progress, the
//     handler is cancelled and writes nothing more;
//   - what succeeded gets its done bits, and entries of which nothing is left are acked, in one script;
//   - an entry that can't be read, or that the numbers of its shard refute (their seq and epoch), becomes a dead
//     letter whole, and sets no done bit, so it takes no event's place;
//   - what failed for good, or too often, becomes a dead letter; what may work later is parked, and others flow on;
//   - while people have paused the sink (`hongbao sink pause`) the shard holds nothing, and no grant loses an attempt;
//   - when the whole sink is down the shard waits with what it holds, one probe at a time, and no grant loses an
//     attempt; nor does one whose claim a live worker holds (hongbao.Heldf).
//
// Attempts are Redis' own delivery count, never memory. A batch-wide failure is halved before it is held against one
// grant. A shard that meets a Broken error says so, hands back what it holds, and tries again more and more slowly, up
// to every 30 s; the other shards go on. Health tells how each shard stands. Run returns after the drain, and says what
// it left.
//
// Trimmer deletes from the stream what every group has finished. It deletes nothing while a declared group is missing.
package consumer
