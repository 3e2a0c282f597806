package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// waitFor is how long rejectGrant waits for a win, and waitEvery how long one of its reads does.
const waitFor, waitEvery = 10 * time.Second, 200 * time.Millisecond

// rejecter is the worker that rejects a grant.
const rejecter = "dev-rejecter"

// rejectGrant takes the next entry of the stream from the workers of sink balance, and makes its grants dead letters.
func (f *Faults) rejectGrant(ctx context.Context) error {
	shard := f.store.Shard(0)
	group, until := shard.Group(configs.SinkBalance), time.Now().Add(waitFor)
	var entry stream.Entry
	err := retry.Poll(ctx, time.Millisecond, func() (done bool, err error) {
		raw, err := group.ReadNew(ctx, rejecter, 1, waitEvery)
		if err == nil && len(raw) > 0 {
			entry, err = stream.ParseEntry(0, raw[0].ID, raw[0].Values)
		}
		switch {
		case err != nil:
			return false, fmt.Errorf("reject a grant: %w", err)
		case len(entry.Grants) > 0:
			return true, nil
		case time.Now().After(until):
			return false, hongbao.Errorf(hongbao.ClassConflict, "nobody has won anything for %s: let users grab, and try again", waitFor)
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	grants := entry.Grants
	for i := range grants {
		_, err := shard.DeadLetter(ctx, store.Letter{Group: configs.SinkBalance, Consumer: rejecter, EntryID: entry.ID,
			Grant: &grants[i], Last: i == len(grants)-1, Class: hongbao.ClassPermanent, Attempts: 1,
			Reason: "hongbao dev has rejected it on purpose: requeue it"})
		if err != nil {
			return fmt.Errorf("reject a grant: %w", err)
		}
		f.tell("The payment of event %s, user %s, is rejected: it is a dead letter. Next: `hongbao dead list`, then `hongbao dead "+
			"requeue`, or the page Dead letters.", grants[i].EventID(), grants[i].User)
	}
	return nil
}

// emptyRedis deletes all data of Redis.
func (f *Faults) emptyRedis(ctx context.Context) error {
	if err := f.direct.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("empty Redis: %w", err)
	}
	f.tell("Redis is empty. No grab is decided, and what the ledger has paid stays paid. Next: `hongbao recover` shows what is lost " +
		"and how to continue.")
	return nil
}
