// Package replay delivers grants again.
//
// A Replay delivers a range of grants to a Handler: the settler, or the publisher, perhaps with another topic. The
// range is given by shard, seq, time, campaign and user, or is that of a sink's dead letters. It reads grants from the
// shard's stream, and from the ledger if their entries are trimmed, even if they are trimmed during the replay.
//
// A replay guarantees:
//
//   - Each replay has its own name and done bits, so it can be stopped or killed anywhere and started again. What was
//     delivered is not delivered a second time, and it ends with the same result.
//   - What it covers, and the last seq of each shard, are noted when it begins and never change under that name.
//   - A dry run writes nothing, neither to Redis nor to the target.
//   - A grant counts as delivered when its Handler says so. What can't be delivered is listed in the report, and
//     tried again by the next run under that name.
//   - Entries that contradict the numbers of their shard (store.Head.Refute) are skipped and counted.
//
// A run fails if an earlier run under its name had another range or target. It also fails at an entry that a newer
// build wrote.
package replay
