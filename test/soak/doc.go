// Command soak runs Hongbao on real servers under load while it kills and stops its workers. Then it closes, refunds,
// reveals and verifies every campaign, compares the callers' own history with the ledger, the topic and the audit, and
// replays all events to a fresh topic, in a process that is killed ten times on its way. `make soak SECONDS=n` runs it.
//
// The campaigns open two by two, and have grants for nine tenths of the run, so that the workers have work when they
// are hit; too few kills of workers that had some fail the run.
//
// Its last line is JSON: grabs, granted, settled, published, lost, double_credits, duplicates, kills, stops, audit,
// refunds, replayed, replay_kills, replay_duplicates, replay_missing. The exit code is 1 if one of them is not as it
// must be; the workers' logs are kept then, and it says where.
package main
