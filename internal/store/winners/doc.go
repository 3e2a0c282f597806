// Package winners has the filter of a campaign's winners. With it a producer refuses a crowd of losers without a call
// to Redis.
//
// Once nothing is left on any place of the newest generation, the set of users who have packets is final until the
// next generation is dealt. A Builder, in a worker, reads all of them and stores a binary fuse filter at the
// campaign's home. A producer fetches it (Fetch). Known then reports which users certainly lost, for as long as it is
// certain that nothing was added.
//
// A user who is not in the filter has no packet. One of 256 losers is in it all the same, and is looked up in Redis
// as every winner is.
package winners
