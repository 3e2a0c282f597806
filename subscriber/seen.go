package subscriber

import (
	"cmp"

	"github.com/hongbao-project/hongbao/topic"
)

// chunkPackets is the number of packets in a chunk.
const chunkPackets = 4096

// chunkKey identifies a chunk of a campaign: the packets from number*chunkPackets+1 on. The shard is in the key so that
// partitions do not wait for each other's rows. It does not change what a repeat is, because a packet never moves to
// another shard of its campaign.
type chunkKey struct {
	source, campaign string
	shard            int
	number           int64
}

func chunkOf(e *topic.Event) chunkKey {
	return chunkKey{source: e.Source, campaign: e.Grant.Campaign, shard: e.Grant.Shard,
		number: (e.Grant.Packet - 1) / chunkPackets}
}

func (k chunkKey) compare(o chunkKey) int {
	return cmp.Or(cmp.Compare(k.source, o.source), cmp.Compare(k.campaign, o.campaign), cmp.Compare(k.shard, o.shard),
		cmp.Compare(k.number, o.number))
}

// bitmap has one bit for each packet of a chunk. The bit is 1 if the packet was seen.
type bitmap [chunkPackets / 8]byte

// bit returns the byte of the event's packet in the bitmap, and the packet's bit in this byte.
func (b *bitmap) bit(e *topic.Event) (*byte, byte) {
	i := (e.Grant.Packet - 1) % chunkPackets
	return &b[i/8], 1 << (i % 8)
}

func (b *bitmap) has(e *topic.Event) bool {
	at, bit := b.bit(e)
	return *at&bit != 0
}

func (b *bitmap) add(e *topic.Event) {
	at, bit := b.bit(e)
	*at |= bit
}
