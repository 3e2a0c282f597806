package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
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
	// Replicas is how many replicas must have the receipts, for class replica; 0 for as many as the primary has had.
	Replicas int
	Users    []string
	Receipts [][]hongbao.Receipt // of each user
}

// Durable waits until a replica, or the disk, has the users' receipts. WAIT and WAITAOF look at the primary's offset
// after the connection's last command, so the receipts are read ahead of them; then it does not matter which connection
// made the grab, and a repeated grab waits for the first one's write as well. A primary that does not have the receipts
// is another one than decided the grab: a replica that was promoted without them. Either is ErrNotDurable.
func (k *Shard) Durable(ctx context.Context, c *DurableCall) error {
	if c.Class == hongbao.DurabilityFast || c.Class == hongbao.DurabilityFsync && c.NoWaitAOF {
		return nil
	}
	end := time.Now().Add(c.Timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	node, err := k.Node(ctx)
	if err != nil {
		return err
	}
	need := int64(1) // of class fsync
	if c.Class == hongbao.DurabilityReplica {
		need = cmp.Or(int64(c.Replicas), max(k.state.replicas.Load(), 1))
	}
	timeout := time.Until(end)
	short := need > 1 && c.Replicas == 0 // after a failover there may be fewer
	if short {
		timeout = min(timeout, shortWait)
	}
	copies, had, err := k.wait(ctx, node, c, need, timeout)
	if err != nil {
		return err
	}
	wanted := need
	if c.Class == hongbao.DurabilityReplica && c.Replicas == 0 {
		need = max(had, 1)
		k.state.replicas.Store(need)
	}
	if copies < need && (short || need > wanted) {
		if copies, _, err = k.wait(ctx, node, c, need, time.Until(end)); err != nil {
			return err
		}
	}
	if copies < need {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w: WAIT for durability class %q: %d of %d had them within %s",
			ErrNotDurable, c.Class, copies, need, c.Timeout)
	}
	return nil
}

// shortWait is how long the first WAIT takes at most where this process remembers several replicas. After a failover
// there may be fewer, and the answer is what says so: it must come before the client's read timeout and the call's
// deadline. The second WAIT has the rest of the time, for a replica that is slow.
const shortWait = 100 * time.Millisecond

// wait waits until so many replicas, or the disk, have the users' receipts. It returns how many have them, and how many
// replicas the primary has had at most.
func (k *Shard) wait(ctx context.Context, node redis.UniversalClient, c *DurableCall, replicas int64,
	timeout time.Duration) (copies, most int64, err error) {
	ms := max(timeout.Milliseconds(), 1) // 0 would wait without limit
	wait := []any{"WAIT", replicas, ms}
	if c.Class == hongbao.DurabilityFsync {
		wait = []any{"WAITAOF", 1, 0, ms}
	}
	pipe := node.Pipeline()
	held := pipe.HMGet(ctx, k.Keys.Receipts(c.Campaign), c.Users...)
	had := pipe.HMGet(ctx, k.Keys.Meta(), replicasField)
	cmd := pipe.Do(ctx, wait...)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, fmt.Errorf("%s for durability class %q: %w", wait[0], c.Class, Classify(err))
	}
	for i, v := range held.Val() {
		text, _ := v.(string) // absent: nothing is held
		if !holds(text, c.Receipts[i]) {
			return 0, 0, hongbao.Outagef(hongbao.ClassUnknown, "%w: the receipt of user %s is not on %s: another server "+
				"became the primary meanwhile", ErrNotDurable, c.Users[i], k.Keys.Meta())
		}
	}
	text, _ := had.Val()[0].(string)
	most, _ = strconv.ParseInt(text, 10, 64) // absent: they were not counted yet
	copies, err = firstInt(cmd.Val())
	return copies, most, err
}

const replicasField = "replicas"

var replicasScript = newDrainScript("replicas")

// RaiseReplicas keeps how many replicas the shard's primary has, unless it has had as many before.
func (k *Shard) RaiseReplicas(ctx context.Context, n int) error {
	_, err := k.run(ctx, replicasScript, []string{k.Keys.Meta()}, []any{n})
	if err == nil {
		raise(&k.state.replicas, int64(n))
	}
	return err
}

// NoWaitAOF reports whether an error is that of a server that does not know WAITAOF.
func NoWaitAOF(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.Contains(strings.ToLower(reply.Error()), "unknown command") &&
		strings.Contains(strings.ToUpper(reply.Error()), "WAITAOF")
}

// holds reports whether a user's receipts, as Redis keeps them, include all of the list.
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
