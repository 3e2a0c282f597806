// Package winners has a filter of all users who have packets of a campaign. With it, a producer can answer sold_out
// to the other users without a call to Redis.
//
// When no place has packets left, the set of winners is final until the next top-up. A Builder, which runs in a
// worker, then reads all winners and stores a binary fuse filter at the campaign's home. A producer fetches the
// filter with Fetch. SoldOutCache reports which users certainly have no packet, as long as it is certain that no
// packets were added.
//
// A user who is not in the filter has no packet. One in 256 users without a packet is a false positive. For these
// users and for winners, the producer calls Redis.
package winners
