package stream

import "context"

// epochKey is the context's key for the epoch of a batch.
type epochKey struct{}

// WithEpoch returns a context for the work on a batch that was taken in an epoch of its shard; see store.WithEpoch.
func WithEpoch(ctx context.Context, epoch int64) context.Context {
	return context.WithValue(ctx, epochKey{}, epoch)
}

// EpochOf returns the epoch in which the batch was taken, and false if the context has none.
func EpochOf(ctx context.Context) (epoch int64, ok bool) {
	epoch, ok = ctx.Value(epochKey{}).(int64)
	return epoch, ok
}
