// Package simulation runs a whole deployment in one process: the real workers, producers, publisher, settler, trimmer
// and recoverer, under the virtual time of testing/synctest, on a network in memory, with miniredis, kfake and the
// ledger on SQLite. A seed gives a history: its servers, campaigns and users, and the faults. docs/design/simulation.md
// says what the histories have, what the judge demands, and how to repeat one.
//
// The processes of a history share the variables of the one Go process. A variable that remembers something across
// calls is a door between simulated processes, which real processes do not have:
//
//   - store.stores: from a client to its Store. Each process has its own client, and App.Shut and Producer.Close leave.
//   - store.allTexts: from an opening's token to the texts of the scripts. A text depends on the token alone.
//   - store.tagsKnown: from a number of shards to hash tags, which depend on nothing else.
//   - store.valuesSeen, store.usersSeen, producer.waiters, serve.callers: pools of memory. Their timers and channels
//     belong to a bubble, so two garbage collections empty the pools between histories.
//   - access.thisProcess: the name of this process in the journal, one for all simulated processes.
//   - winners.start: the time against which filters measure; virtual time begins before it, in each bubble again.
//   - parsedScripts of miniredis: from a script's text to its code.
//   - redis.SetLogger of go-redis: the last App sets it for all. It only logs.
//
// No mutex may be held during a call to a server: a goroutine that waits for a sync.Mutex is not durably blocked, so
// virtual time stands. Such sections use internal/base/turn. The watchdog ends a test whose virtual time stands.
package simulation
