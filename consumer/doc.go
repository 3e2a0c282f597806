// Package consumer delivers the events of a consumer group to a Handler, which knows what to do with them.
//
// The pending list of Redis is both the lease table and the retry schedule. An entry leaves it only when it is done, so
// it can't get lost between two structures. A worker repeats these steps for each shard:
//
//   - It reclaims entries that are due: parked entries whose backoff is over, and entries of workers that stopped
//     renewing their lease. If there are none, it reads new entries.
//   - It renews the lease of the entries while the handler works on them. If the lease is lost, or the handler makes no
//     progress, the worker cancels the handler and writes nothing more.
//   - One script sets the done bits of the grants that are done, and acks the entries without remaining grants.
//   - A grant that failed permanently or too often becomes a dead letter. An entry with grants that may succeed later
//     is parked, and the shard continues with other entries.
//   - An entry that is unreadable, or whose seq or epoch contradicts the shard, becomes one dead letter as a whole. It
//     sets no done bit, because a real event may have that seq.
//
// A grant loses no attempt while its sink is paused (`hongbao sink pause`), while the whole sink is down, or while
// another live worker has the claim on it (hongbao.Waitingf). During a pause the shard owns no entries. During an
// outage it keeps its entries and tries them again with a backoff.
//
// The delivery count of Redis counts the attempts, so a crash of the worker counts too. If a batch fails as a whole, it
// is halved until the failure belongs to one grant. A shard with a Broken error hands back its entries and retries with
// a backoff of up to 30 s, while the other shards continue. Health returns the state of each shard.
//
// Trimmer deletes from the stream the entries that every group has finished. While a declared group does not exist, it
// deletes nothing.
package consumer
