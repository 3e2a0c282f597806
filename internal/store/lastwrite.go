package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// LastWrite is when a shard was last written.
type LastWrite struct {
	// Wrote is the time of the last write to the shard before it froze, see stream.LastWrite. It is the Unix epoch if that
	// is unknown, or if the stream is gone.
	Wrote time.Time
	// Newest is the own time of the stream's last entry. The clock may have been ahead then. It is the zero time if the
	// stream has no entry.
	Newest time.Time
	// Ahead is how far the server's clock is ahead of this process's clock; negative if it is behind.
	Ahead time.Duration

	now time.Time // by the server's clock
}

// LastWrite returns when the shard was last written, also if it is open or Redis has lost it.
func (k *Shard) LastWrite(ctx context.Context) (LastWrite, error) {
	conn, err := k.pin(ctx)
	if err != nil {
		return LastWrite{}, err
	}
	defer conn.Close()
	return k.lastWriteOn(ctx, conn)
}

func (k *Shard) lastWriteOn(ctx context.Context, conn *redis.Conn) (w LastWrite, err error) {
	pipe := conn.Pipeline()
	v, exists := pipe.HMGet(ctx, k.Keys.Meta(), "watched", frozenField), pipe.Exists(ctx, k.Keys.Events())
	entries, now := pipe.XRevRangeN(ctx, k.Keys.Events(), "+", "-", someEntries), pipe.Time(ctx)
	if _, err = pipe.Exec(ctx); err != nil {
		return w, fmt.Errorf("ask %s for its last write: %w", k.Keys.Meta(), Classify(err))
	}
	w.now, w.Wrote = now.Val(), time.UnixMilli(0)
	w.Ahead = time.Until(w.now)
	newest, found, err := k.firstEntry(entries)
	if err != nil {
		return w, err
	}
	if found {
		w.Newest = newest.Time
	}
	until := w.now
	if at := v.Val()[1]; at != nil && unixMilli(at).Before(until) { // later: the clock was corrected since the freeze
		until = unixMilli(at)
	}
	if exists.Val() > 0 {
		w.Wrote = stream.LastWrite(unixMilli(v.Val()[0]), w.Newest, until)
	}
	return w, nil
}
