// Package winners has the filter of a campaign's winners, by which a producer refuses a crowd of losers without asking
// Redis.
//
// Once nothing is left on any place of the newest generation, who holds packets is final until the next generation is
// dealt. A Builder, in a worker, reads all of them and stores a binary fuse filter at the campaign's home. A producer
// fetches it (Fetch), and Known tells it who is certainly too late, for as long as it is certain that nothing was
// added.
//
// A user who is not in the filter holds nothing. One of 256 of these is in it all the same, and is looked up in Redis
// as every winner is.
package winners
