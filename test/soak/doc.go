// Command soak runs Hongbao on real servers under load while it kills and stops its workers. Then it closes, refunds,
// reveals and verifies every campaign, compares the callers' own history with the ledger, the topic and the audit, and
// replays all events to a fresh topic, in a process that is killed ten times on its way. `make soak SECONDS=n` runs it.
//
// The campaigns open two by two, and have grants for nine tenths of the run, so that the workers have work when they
// are hit; too few kills of workers that had some fail the run.
//
// With -lose fast or -lose replica the primary of Redis is killed once a minute, and the sentinels promote a replica. Of
// class fast each replica lags: what Redis loses then must come back.
//
// Its last line is JSON: grabs, granted, settled, published, lost, double_credits, duplicates, kills, stops, audit,
// refunds, replayed, replay_kills, replay_duplicates, replay_missing, and with -lose failovers, redis_lost, restored.
// The exit code is 1 if one of them is not as it must be; the workers' logs are kept then, and it says where.
package main
