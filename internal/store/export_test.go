package store

// Stores is how many stores the process keeps for a space.
func Stores(of *Store) (n int) {
	stores.Range(func(at, _ any) bool {
		if at.(clientSpace).space == of.Space() {
			n++
		}
		return true
	})
	return n
}

// Seen is the highest seq that the process has seen of a shard by its client.
func Seen(k *Shard) int64 { return k.state.seen.Load() }
