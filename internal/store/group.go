package store

// Group is the consumer group of a sink on a shard. Its done bits, claims, letters and controls have the sink's name.
type Group struct {
	shard *Shard
	name  string
}

// Group returns a group of the shard. It does not call Redis, and the group need not exist.
func (k *Shard) Group(name string) Group { return Group{k, name} }
