package store

// Place is a campaign on a shard: its hash, stock, receipts and codes there. It has the methods of the shard, too.
type Place struct {
	*Shard
	Campaign string
}

// Place returns a campaign on the shard. It does not call Redis, and the campaign need not exist.
func (k *Shard) Place(campaign string) Place { return Place{k, campaign} }

// At returns the place for work on entries that were read in the given epoch; see Shard.At.
func (p Place) At(epoch int64) Place { return p.Shard.At(epoch).Place(p.Campaign) }
