package shards

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// ErrNotDurable says that receipts are not as safe yet as their campaign promises. Its error is Unknown, an outage.
var ErrNotDurable = errors.New("the receipts are not safe yet")

// DurableCall asks whether what users are about to be told is as safe as their campaign promises.
type DurableCall struct {
	Campaign string
	Class    hongbao.Durability
	// NoWaitAOF: the server does not know WAITAOF and has appendfsync always, so all is on disk before the answer.
	NoWaitAOF bool
	Timeout   time.Duration
	Users     []string
	Receipts  [][]hongbao.Receipt // of each user
}

// Durable waits until a replica, or the disk, has the users' receipts. WAIT and WAITAOF look at the primary's offset
// after the connection's last command, so the receipts are read ahead of them; then it does not matter which connection
// made the grab, and a repeated grab waits for the first one's write as well. A primary that does not have the receipts
// is another one than decided the grab: a replica that was promoted without them. Either is ErrNotDurable.
func (k *Shard) Durable(ctx context.Context, c *DurableCall) error {
	if c.Class == hongbao.DurabilityFast || c.Class == hongbao.DurabilityFsync && c.NoWaitAOF {
		return nil
	}
	timeout := c.Timeout
	if at, ok := ctx.Deadline(); ok { // Redis is told of it in ms; at least one
		timeout = max(min(timeout, time.Until(at)), time.Millisecond)
	}
	wait := []any{"WAIT", 1, timeout.Milliseconds()}
	if c.Class == hongbao.DurabilityFsync {
		wait = []any{"WAITAOF", 1, 0, timeout.Milliseconds()}
	}
	node, err := NodeOf(ctx, k.rdb, k.Keys)
	if err != nil {
		return err
	}
	pipe := node.Pipeline()
	held := pipe.HMGet(ctx, k.Keys.Receipts(c.Campaign), c.Users...)
	cmd := pipe.Do(ctx, wait...)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%s for durability class %q: %w", wait[0], c.Class, Classify(err))
	}
	for i, v := range held.Val() {
		text, _ := v.(string) // absent: nothing is held
		if !holds(text, c.Receipts[i]) {
			return hongbao.Outagef(hongbao.ClassUnknown, "%w: the receipt of user %s is not on %s: another server became the "+
				"primary meanwhile", ErrNotDurable, c.Users[i], k.Keys.Meta())
		}
	}
	copies, err := firstInt(cmd.Val())
	if err != nil {
		return err
	}
	if copies < 1 {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w: %s: durability class %q was not reached within %s", ErrNotDurable,
			wait[0], c.Class, timeout)
	}
	return nil
}

// NoWaitAOF tells whether an error is that of a server that does not know WAITAOF.
func NoWaitAOF(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.Contains(strings.ToLower(reply.Error()), "unknown command") &&
		strings.Contains(strings.ToUpper(reply.Error()), "WAITAOF")
}

// holds tells whether a user's receipts, as Redis keeps them, hold all of the list.
func holds(text string, list []hongbao.Receipt) bool {
	text = "\n" + text
	for i := range list {
		r := &list[i]
		if !strings.Contains(text, fmt.Sprintf("\n%d %d %d ", r.Packet, r.Amount, r.Seq)) {
			return false
		}
	}
	return true
}

// firstInt reads the answer of WAIT, a number, or of WAITAOF, a list that begins with the local disk.
func firstInt(v any) (int64, error) {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("redis answered %T to WAIT, want a number", v)
	}
	return n, nil
}
