package stream

import "context"

// epochKey is the context key of the epoch.
type epochKey struct{}

// WithEpoch returns a context for the work on a batch. epoch is the shard's epoch when the worker read the batch; see
// store.WithEpoch.
func WithEpoch(ctx context.Context, epoch int64) context.Context {
	return context.WithValue(ctx, epochKey{}, epoch)
}

// EpochOf returns the epoch that WithEpoch set; ok is false if the context has none.
func EpochOf(ctx context.Context) (epoch int64, ok bool) {
	epoch, ok = ctx.Value(epochKey{}).(int64)
	return epoch, ok
}
