package shards

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Audited is what is kept of the last whole audit.
type Audited struct {
	Started     time.Time
	Differences int64
}

// SetAudited keeps what a whole audit found, on the first shard.
func SetAudited(ctx context.Context, rdb redis.UniversalClient, layout *Layout, a Audited) error {
	err := rdb.HSet(ctx, layout.Shard(0).Audit(), "started", a.Started.UnixMilli(), "differences", a.Differences).Err()
	if err != nil {
		return fmt.Errorf("keep the verdict of the audit: %w", Classify(err))
	}
	return nil
}

// LastAudit gives what the last whole audit found; false if there was none.
func LastAudit(ctx context.Context, rdb redis.UniversalClient, layout *Layout) (Audited, bool, error) {
	var has struct {
		Started     int64 `redis:"started"`
		Differences int64 `redis:"differences"`
	}
	cmd := rdb.HGetAll(ctx, layout.Shard(0).Audit())
	if err := cmd.Err(); err != nil {
		return Audited{}, false, fmt.Errorf("read the verdict of the last audit: %w", Classify(err))
	}
	if err := cmd.Scan(&has); err != nil {
		return Audited{}, false, fmt.Errorf("%s: %w", layout.Shard(0).Audit(), err)
	}
	return Audited{time.UnixMilli(has.Started), has.Differences}, has.Started > 0, nil
}
