package store

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

var lockScript = newDrainScript("lock").with(unguarded)

// LockCall names a lock and the caller that wants it.
type LockCall struct {
	Name  string
	Token string // unique to the caller
	Lease time.Duration
}

// TakeLock takes a lock. If another owner has it, ok is false and held is the rest of that owner's lease. If the lock
// already has the caller's token, TakeLock renews the lease.
func (k *Shard) TakeLock(ctx context.Context, c *LockCall) (ok bool, held time.Duration, err error) {
	reply, err := c.run(ctx, k, "take")
	if err != nil {
		return false, 0, err
	}
	return taken(reply)
}

// taken parses lock.lua's answer to take.
func taken(reply []string) (ok bool, held time.Duration, err error) {
	r := replyReader{rest: reply}
	if ok = r.string() == "ok"; !ok {
		held = time.Duration(r.int64()) * time.Millisecond
	}
	return ok, held, r.done(lockScript)
}

// RenewLock renews the lease. It returns false if the lock is lost: its lease ended, or another owner took it.
func (k *Shard) RenewLock(ctx context.Context, c *LockCall) (bool, error) {
	return c.own(ctx, k, "renew")
}

// ReleaseLock releases the lock. It returns false and changes nothing if the caller no longer has the lock.
func (k *Shard) ReleaseLock(ctx context.Context, c *LockCall) (bool, error) {
	return c.own(ctx, k, "release")
}

// Locked reports whether somebody holds the lock of this name.
func (k *Shard) Locked(ctx context.Context, name string) (bool, error) {
	n, err := k.rdb.Exists(ctx, k.Keys.Lock(name)).Result()
	if err != nil {
		return false, fmt.Errorf("read lock %s of shard %d: %w", name, k.Keys.Index(), Classify(err))
	}
	return n > 0, nil
}

func (c *LockCall) own(ctx context.Context, k *Shard, do string) (bool, error) {
	reply, err := c.run(ctx, k, do)
	if err != nil {
		return false, err
	}
	return one(lockScript, reply, func(s string) (bool, error) { return s == "ok", nil })
}

func (c *LockCall) run(ctx context.Context, k *Shard, do string) ([]string, error) {
	if err := hongbao.CheckCampaignID(c.Name); err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "lock %.80q: %w", c.Name, err)
	}
	reply, err := k.run(ctx, lockScript, []string{k.Keys.Lock(c.Name)}, []any{do, c.Token, c.Lease.Milliseconds()})
	if err != nil {
		return nil, fmt.Errorf("%s lock %s: %w", do, c.Name, err)
	}
	return reply, nil
}
