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

// ErrNotDurable says that the receipts are not yet on enough replicas, or not yet on disk, as the campaign's
// durability class requires. Errors that wrap it are outages of class Unknown.
var ErrNotDurable = errors.New("the receipts are not safe yet")

// DurableCall has the arguments of Durable.
type DurableCall struct {
	Class   hongbao.Durability
	Timeout time.Duration
	// Replicas is how many replicas must have the receipts, for class replica; 0 means the highest number that the
	// primary has had.
	Replicas int
	Users    []string
	Receipts [][]hongbao.Receipt // of each user
}

// Durable waits until enough replicas, or the disk, have the users' receipts. Since Redis 7.2, WAIT and WAITAOF use the
// primary's offset after the connection's last write, which may be older than the receipts. So Durable reads the
// receipts and writes one again before it waits, on the same connection. The result then does not depend on the
// connection that made the grab. A repeated grab also waits until the first grab's write is safe. If the primary lacks
// the receipts, a replica without them was promoted. In that case, or if the wait times out, Durable returns
// ErrNotDurable.
func (p Place) Durable(ctx context.Context, c *DurableCall) error {
	if c.Class == hongbao.DurabilityFast {
		return nil
	}
	end := time.Now().Add(c.Timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	node, err := p.Node(ctx)
	if err != nil {
		return err
	}
	need := int64(1) // for class fsync
	if c.Class == hongbao.DurabilityReplica {
		need = cmp.Or(int64(c.Replicas), max(p.state.replicas.Load(), 1))
	}
	timeout := time.Until(end)
	short := need > 1 && c.Replicas == 0 // after a failover there may be fewer than this process remembers
	if short {
		timeout = min(timeout, shortWait)
	}
	copies, had, err := p.wait(ctx, node, c, need, timeout)
	if noWaitAOF(err) {
		return checkSyncs(ctx, node)
	}
	if err != nil {
		return err
	}
	wanted := need
	if c.Class == hongbao.DurabilityReplica && c.Replicas == 0 {
		need = max(had, 1)
		p.state.replicas.Store(need)
	}
	if copies < need && (short || need > wanted) {
		if copies, _, err = p.wait(ctx, node, c, need, time.Until(end)); err != nil {
			return err
		}
	}
	if copies < need {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w: WAIT for durability class %q: %d of %d had them within %s",
			ErrNotDurable, c.Class, copies, need, c.Timeout)
	}
	return nil
}

// shortWait limits the first WAIT if this process remembers several replicas. After a failover there may be fewer,
// and only a reply shows that. So the first reply must come before the client's read timeout and the call's deadline.
// The second WAIT gets the rest of the time, for a slow replica.
const shortWait = 100 * time.Millisecond

// wait waits until the given number of replicas, or the disk, has the users' receipts. It returns how many replicas
// have them, and the highest number of replicas that the primary has had.
func (p Place) wait(ctx context.Context, node redis.UniversalClient, c *DurableCall, replicas int64,
	timeout time.Duration) (copies, most int64, err error) {
	ms := max(timeout.Milliseconds(), 1) // 0 would wait without limit
	wait := []any{"WAIT", replicas, ms}
	if c.Class == hongbao.DurabilityFsync {
		wait = []any{"WAITAOF", 1, 0, ms}
	}
	pipe := node.Pipeline()
	touched := touch(ctx, pipe, p.Keys.Receipts(p.Campaign), c.Users...)
	had := pipe.HMGet(ctx, p.Keys.Meta(), replicasField)
	cmd := pipe.Do(ctx, wait...)
	_, err = pipe.Exec(ctx)
	if err == nil || noWaitAOF(err) { // WAITAOF is the last command, so the others succeeded
		if lacks := p.checkReceipts(c, touched.Val()); lacks != nil {
			return 0, 0, lacks
		}
	}
	if redis.HasErrorPrefix(err, "NOREPLICAS") { // min-replicas-to-write
		return 0, 0, hongbao.Outagef(hongbao.ClassUnknown, "%w: %s for durability class %q: %w", ErrNotDurable, wait[0], c.Class,
			err)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s for durability class %q: %w", wait[0], c.Class, Classify(err))
	}
	text, _ := had.Val()[0].(string)
	most, _ = strconv.ParseInt(text, 10, 64) // 0 if the replicas were not counted yet
	copies, err = firstInt(cmd.Val())
	return copies, most, err
}

var touchScript = newDrainScript("touch").with(unguarded)

// touchText is the script without its head, because each call sends the text.
var touchText = func() string {
	short := *touchScript
	_, short.src, _ = strings.Cut(short.src, "\n\n")
	return new(texts).text(&short)
}()

// touch queues touch.lua. It sends the script's text: after NOSCRIPT, a WAIT in the same pipeline would run too early.
func touch(ctx context.Context, pipe redis.Scripter, hash string, fields ...string) *redis.Cmd {
	args := make([]any, len(fields))
	for i := range fields {
		args[i] = &fields[i] // a pointer, because a string in an interface allocates
	}
	return pipe.Eval(ctx, touchText, []string{hash}, args...)
}

const replicasField = "replicas"

var replicasScript = newDrainScript("replicas")

// RaiseReplicas stores how many replicas the shard's primary has, if that is more than ever before.
func (k *Shard) RaiseReplicas(ctx context.Context, n int) error {
	_, err := k.run(ctx, replicasScript, []string{k.Keys.Meta()}, []any{n})
	if err == nil {
		raise(&k.state.replicas, int64(n))
	}
	return err
}

// noWaitAOF reports whether an error is that of a server that does not know WAITAOF.
func noWaitAOF(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.Contains(strings.ToLower(reply.Error()), "unknown command") &&
		strings.Contains(strings.ToUpper(reply.Error()), "WAITAOF")
}

// checkSyncs returns an error if a server without WAITAOF may reply before a write is on disk. It asks the server each
// time, because the settings can change at run time. If they are not both right, Inspect finds what is wrong.
func checkSyncs(ctx context.Context, node redis.UniversalClient) error {
	has, err := node.ConfigGet(ctx, "append*").Result()
	if err == nil && has["appendonly"] == "yes" && has["appendfsync"] == "always" {
		return nil
	}
	servers, err := Inspect(ctx, node)
	if err != nil {
		return err
	}
	return servers[0].CheckNow(hongbao.DurabilityFsync)
}

// checkReceipts returns an error if the reply of touch.lua lacks a receipt of the call.
func (p Place) checkReceipts(c *DurableCall, reply any) error {
	has, err := flatten(touchScript.name, reply)
	if err != nil {
		return err
	}
	for i, text := range has {
		if !hasAll(text, c.Receipts[i]) {
			return hongbao.Outagef(hongbao.ClassUnknown, "%w: the receipt of user %s is not on %s: another server became "+
				"the primary meanwhile", ErrNotDurable, c.Users[i], p.Keys.Meta())
		}
	}
	return nil
}

// hasAll reports whether a user's receipts, as Redis stores them, include every receipt of the list.
func hasAll(text string, list []hongbao.Receipt) bool {
	text = "\n" + text
	for i := range list {
		r := &list[i]
		if !strings.Contains(text, fmt.Sprintf("\n%d %d %d ", r.Packet, r.Amount, r.Seq)) {
			return false
		}
	}
	return true
}

// firstInt returns the number that WAIT answers, or the first number of WAITAOF, which is for the local disk.
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
