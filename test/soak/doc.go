// Command soak runs Hongbao on real servers under load while it kills and stops its workers. Then it closes, refunds,
// reveals and verifies every campaign. It compares the callers' history with the ledger, the topic and the audit.
// Last, it replays all events to a fresh topic, in a process that it kills ten times. `make soak SECONDS=n` runs it.
//
// Two campaigns are open at a time. They have grants for nine tenths of the run, so that the workers have work when
// they are killed. The run fails if too few kills hit workers that had work.
//
// With -lose fast or -lose replica the soak kills the primary of Redis once a minute, and the sentinels promote a
// replica. With class fast each replica lags: the grants that Redis loses then must be restored.
//
// Its last line is JSON: grabs, granted, settled, published, lost, double_credits, duplicates, kills, stops, audit,
// refunds, replayed, replay_kills, replay_duplicates, replay_missing, and with -lose failovers, redis_lost, restored.
// The exit code is 1 if one of them is wrong. Then the soak keeps the workers' logs and prints their folder.
package main
