package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/lua"
)

// ErrFrozen says that a shard refuses all calls: it was never initialized, or Redis may have lost acknowledged
// writes. It is an outage: the call changed nothing and can be repeated once the shard is open.
var ErrFrozen = errors.New("the shard is frozen")

// ErrStale says that the shard was opened again after the caller read its batch. The call changed nothing. The caller
// must read the batch again.
var ErrStale = errors.New("the shard was opened again since this batch was taken")

// state is what this process has seen of one shard through one client.
type state struct {
	opened atomic.Pointer[texts] // the scripts for the server that the shard was opened for; nil before the first call
	seen   atomic.Int64          // the highest seq
	// replicas is how many replicas grabs of durability class replica wait for
	replicas atomic.Int64
	frozen   atomic.Int64 // until this Unix time in ns, calls return ErrFrozen without a request to Redis

	last   atomic.Pointer[epochSeen] // what was seen in the newest epoch
	epochs sync.Map                  // epoch to *epochSeen
	// least is the epoch of the last restore attempt to which this process has sent its evidence. Replies of earlier
	// epochs are ignored afterwards, because the attempt may have finished without them. witness.mu protects changes
	// of least.
	least   atomic.Int64
	witness witness
}

// forgetBefore deletes what was seen in earlier epochs, after a restore attempt has received it.
func (st *state) forgetBefore(epoch int64) {
	st.epochs.Range(func(e, _ any) bool {
		if e.(int64) < epoch { //nolint:forcetypeassert // all keys are int64
			st.epochs.Delete(e)
		}
		return true
	})
}

// epochSeen is the highest seq that this process has seen of a shard in one epoch.
type epochSeen struct {
	epoch int64
	seq   atomic.Int64
}

// saw records the highest seq that this process has seen. Each script call passes it to Redis. saw also records the
// highest seq of each epoch. Otherwise the higher seqs of a later epoch would hide that an event of an earlier epoch
// was lost.
func (st *state) saw(epoch, seq int64) {
	if epoch < st.least.Load() {
		return
	}
	raise(&st.seen, seq)
	e := st.last.Load()
	if e == nil || e.epoch != epoch {
		has, _ := st.epochs.LoadOrStore(epoch, &epochSeen{epoch: epoch})
		e = has.(*epochSeen) //nolint:forcetypeassert // all values are *epochSeen
		if last := st.last.Load(); last == nil || last.epoch < epoch {
			st.last.Store(e)
		}
	}
	raise(&e.seq, seq)
}

// sawOpening records the seq and epoch in a reply to an HMGET of openingFields. It ignores unreadable values.
func (st *state) sawOpening(v []any) {
	seq, _ := v[0].(string)
	epoch, _ := v[1].(string)
	s, errSeq := strconv.ParseInt(seq, 10, 64)
	e, errEpoch := strconv.ParseInt(epoch, 10, 64)
	if errSeq == nil && errEpoch == nil {
		st.saw(e, s)
	}
}

// known returns the latest seq and epoch that this process has seen, or the zero Head if it has seen none.
func (st *state) known() Head {
	e := st.last.Load()
	if e == nil {
		return Head{}
	}
	return Head{Seq: e.seq.Load(), Epoch: e.epoch}
}

func raise(to *atomic.Int64, n int64) {
	for {
		was := to.Load()
		if n <= was || to.CompareAndSwap(was, n) {
			return
		}
	}
}

// late returns the highest seq that this process saw in an earlier epoch and that an opening has skipped, or 0. Such
// a seq shows that the shard was opened although an event was lost. The last seq of a skipped range does not count:
// it is meta.seq after the opening, and never the seq of an event.
func (st *state) late(epoch int64, skipped []skippedRange) (seq, seenIn int64) {
	st.epochs.Range(func(_, v any) bool {
		e := v.(*epochSeen) //nolint:forcetypeassert // all values are *epochSeen
		s := e.seq.Load()
		for _, r := range skipped {
			if e.epoch < epoch && !r.accepted && r.First <= s && s < r.Last && s > seq {
				seq, seenIn = s, e.epoch
			}
		}
		return true
	})
	if s, in := st.lateReported(epoch, skipped); s > seq {
		seq, seenIn = s, in
	}
	return seq, seenIn
}

// saw records events that the caller has read from the stream. If the shard's seq is lower later, Redis went back in
// time. The events are recorded for the epoch of the caller's batch, which is their epoch or a later one.
func (k *Shard) saw(ctx context.Context, events ...stream.SeqRange) {
	epoch, ok := stream.EpochOf(ctx)
	if last := k.state.last.Load(); !ok && last != nil {
		epoch = last.epoch
	}
	for _, r := range events {
		k.state.saw(epoch, r.Last)
	}
}

// frozenFor is how long this process assumes that a frozen shard is still frozen.
const frozenFor = 100 * time.Millisecond

func (st *state) freeze() { st.frozen.Store(time.Now().Add(frozenFor).UnixNano()) }

// texts are the scripts for one run of one server. Their first line contains the run's token, so the SHA-1s differ
// from run to run. A server that was restarted or promoted therefore answers NOSCRIPT and runs nothing.
type texts struct {
	token string
	plain bool // without script flags, for miniredis
	sha   map[*script]string
}

var allTexts sync.Map // from the token, or "plain " and the token, to *texts

func textsFor(token string, plain bool) *texts {
	key := token
	if plain {
		key = "plain " + token
	}
	if t, ok := allTexts.Load(key); ok {
		return t.(*texts) //nolint:forcetypeassert // all values are *texts
	}
	t := &texts{token: token, plain: plain, sha: make(map[*script]string, len(scripts))}
	for _, s := range scripts {
		sum := sha1.Sum([]byte(t.text(s))) //nolint:gosec // see the import
		t.sha[s] = hex.EncodeToString(sum[:])
	}
	was, _ := allTexts.LoadOrStore(key, t)
	return was.(*texts) //nolint:forcetypeassert // the same
}

func (t *texts) text(s *script) string {
	var b strings.Builder
	if s.drain && !t.plain {
		b.WriteString(allowOOM)
	}
	if s.guard != unguarded {
		b.WriteString("local OPENED = '" + t.token + "'\n")
	}
	if s.guard == guarded {
		b.WriteString(lua.Source("guard"))
	}
	b.WriteString(s.src)
	return b.String()
}

// WithEpoch returns a context for work on a batch that was read in the given epoch. If the shard has a later epoch,
// scripts called with this context change nothing and return ErrStale.
func WithEpoch(ctx context.Context, epoch int64) context.Context {
	return stream.WithEpoch(ctx, epoch)
}

func epochOf(ctx context.Context) string {
	if epoch, ok := stream.EpochOf(ctx); ok {
		return strconv.FormatInt(epoch, 10)
	}
	return ""
}

// run calls a script of the shard. It adds the arguments of lua/guard.lua: meta, the caller's epoch and the highest
// seq that the caller has seen. For a script with an inline guard, the caller adds them.
func (k *Shard) run(ctx context.Context, s *script, keys []string, args []any) ([]string, error) {
	if s.guard == unguarded {
		return s.runPlain(ctx, k.rdb, keys, args)
	}
	if until := k.state.frozen.Load(); until != 0 && time.Now().UnixNano() < until {
		return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], frozenError("it was frozen a moment ago"))
	}
	if s.guard == guarded {
		keys, args = append(keys, k.Keys.Meta()), append(args, epochOf(ctx), k.state.seen.Load())
	}
	var cmd *redis.Cmd
	if t := k.state.opened.Load(); t != nil {
		cmd = s.call(ctx, k.rdb, t.sha[s], keys, args)
	}
	if cmd == nil || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") || redis.HasErrorPrefix(cmd.Err(), "HBOPENED") {
		var err error
		if cmd, err = k.open(ctx, s, keys, args); err != nil {
			return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], err)
		}
	}
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], s.classify(k.rdb, err))
	}
	return flatten(s.name, v)
}

func frozenError(why string) error {
	return hongbao.Outagef(hongbao.ClassTransient, "%w: %s", ErrFrozen, why)
}

// open checks whether the shard was opened for its present server. If so, it loads the script and calls it; if not,
// it freezes the shard. All steps use one connection, so they reach the same run of the same server.
func (k *Shard) open(ctx context.Context, s *script, keys []string, args []any) (*redis.Cmd, error) {
	conn, err := k.pin(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	token, frozen, err := k.tokenOn(ctx, conn)
	if err != nil {
		return nil, err
	}
	if frozen != "" {
		k.state.freeze()
		return nil, frozenError(frozen)
	}
	t := textsFor(token, false)
	cmd, loaded := t.loadAndCall(ctx, conn, s, keys, args)
	if s.drain && redis.HasErrorPrefix(loaded, "Error compiling script") { // miniredis does not know flags
		t = textsFor(token, true)
		cmd, loaded = t.loadAndCall(ctx, conn, s, keys, args)
	}
	if loaded != nil {
		return nil, fmt.Errorf("load it: %w", Classify(loaded))
	}
	k.state.opened.Store(t)
	return cmd, nil
}

// AskOpen checks whether other reads in the same pipeline can be trusted. The caller must queue them after AskOpen.
// After the pipeline has run, judge returns ErrFrozen if the shard is frozen or missing, or was opened for a
// different server. In these cases the present server may have lost data.
func (k *Shard) AskOpen(ctx context.Context, pipe redis.Pipeliner) (judge func() error) {
	return k.askOpenOn(ctx, pipe, pipe.Info(ctx, "server", "replication"))
}

// askOpenOn is AskOpen for a pipeline that already has an INFO command.
func (k *Shard) askOpenOn(ctx context.Context, pipe redis.Pipeliner, server *redis.StringCmd) (judge func() error) {
	meta := pipe.HMGet(ctx, k.Keys.Meta(), openingFields...)
	return func() error {
		if err := meta.Err(); err != nil { // during a slot migration, meta may be on another node
			return fmt.Errorf("read %s: %w", k.Keys.Meta(), Classify(err))
		}
		s, opening := parseInfo(server.Val()), parseOpening(meta.Val())
		k.state.sawOpening(meta.Val())
		if !opening.openFor(&s) {
			return frozenError(k.Keys.Meta() + " is frozen or gone, or was not opened for this server: what Redis reports about " +
				"campaigns may be old until a worker opens it; run `hongbao recover`, which shows what is lost")
		}
		return nil
	}
}

// loadAndCall loads a script and calls it, in one pipeline. It retries if another client flushes the script cache
// between the two commands. A transaction would avoid that, but Redis refuses it when it is out of memory.
func (t *texts) loadAndCall(ctx context.Context, conn *redis.Conn, s *script, keys []string,
	args []any) (call *redis.Cmd, loaded error) {
	for range 5 {
		var load *redis.StringCmd
		_, _ = conn.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			load = p.ScriptLoad(ctx, t.text(s))
			call = s.call(ctx, p, t.sha[s], keys, args)
			return nil
		})
		if loaded = load.Err(); loaded != nil || !redis.HasErrorPrefix(call.Err(), "NOSCRIPT") {
			break
		}
	}
	return call, loaded
}

// pin returns a dedicated connection to the shard's server. It fails instead of reconnecting.
func (k *Shard) pin(ctx context.Context) (*redis.Conn, error) {
	switch c := k.rdb.(type) {
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, k.Keys.Meta())
		if err != nil {
			return nil, fmt.Errorf("find the node of %s: %w", k.Keys.Meta(), Classify(err))
		}
		return node.Conn(), nil
	case *redis.Client:
		return c.Conn(), nil
	}
	return nil, hongbao.Errorf(hongbao.ClassBroken,
		"a client of type %T can't be used: want *redis.Client or *redis.ClusterClient", k.rdb)
}

// tokenOn returns the token of the connection's server if the shard was opened for this server. Otherwise it freezes
// the shard, and frozen is the reason.
func (k *Shard) tokenOn(ctx context.Context, conn *redis.Conn) (token, frozen string, err error) {
	server, err := info(ctx, conn)
	if err != nil {
		return "", "", err
	}
	if server.Role != "" && server.Role != "master" { // miniredis has none
		return "", "", hongbao.Outagef(hongbao.ClassTransient, "the server's role is %s, the primary is wanted", server.Role)
	}
	m, err := conn.HMGet(ctx, k.Keys.Meta(), openingFields...).Result()
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", k.Keys.Meta(), Classify(err))
	}
	k.state.sawOpening(m)
	if opening := parseOpening(m); opening.openFor(&server) {
		return server.RunID, "", nil
	}
	z, err := freezeOn(ctx, conn, k, &server, 0, "")
	if err != nil {
		return "", "", err
	}
	if !z.Frozen { // another process has just opened it
		return server.RunID, "", nil
	}
	return "", z.why(), nil
}
