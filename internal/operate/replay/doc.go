// Package replay delivers grants again.
//
// A Replay brings a range of grants (by shard, seq, time, campaign, user, or those of a sink's dead letters) to a
// Handler: the settler, the publisher, the publisher with another topic. It reads the shard's stream while that is kept
// and the ledger for what was trimmed, also when the trimming overtakes it.
//
// What it promises:
//
//   - Each replay has its own name and done bits, so it can be stopped or killed anywhere and started again. What was
//     delivered is not delivered a second time, and it ends with the same result.
//   - What it covers, and the last seq of each shard, are noted when it begins and never change under that name.
//   - A dry run writes nothing, neither to Redis nor to the target.
//   - A grant counts as delivered when its Handler says so. What can't be delivered is listed in the report, and
//     tried again by the next run under that name.
//   - Entries that contradict the numbers of their shard (store.Head.Refute) are skipped and counted.
//
// It refuses a name that was begun with another range or target, and entries of a newer build.
package replay
