package store

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
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
	// replicas is how many replicas grabs of durability class replica wait for
	replicas atomic.Int64
	frozen   atomic.Int64 // until this Unix time in ns, calls return ErrFrozen without a request to Redis

	last   atomic.Pointer[epochSeen] // what was seen in the newest epoch; each script call passes it to Redis
	epochs sync.Map                  // epoch to *epochSeen
	// least is the epoch of the last restore attempt to which this process has sent its evidence. Replies of earlier
	// epochs are ignored afterwards, because the attempt may have finished without them. witness.mu protects changes
	// of least.
	least   atomic.Int64
	witness witness
	pace    *pace
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
	// began is the last seq that the epoch's opening skipped: it is meta.seq after the opening, and never the seq of an
	// event. 0 if this process does not know it.
	began atomic.Int64
}

// Sight is an event that a process has seen: the shard's epoch, and its last seq then.
type Sight struct{ Epoch, Seq int64 }

// After reports whether s is later than o: it has a later epoch, or a higher seq of the same epoch. Seqs of different
// epochs are not compared, because Redis may have used a lost seq again.
func (s Sight) After(o Sight) bool {
	return cmp.Or(cmp.Compare(s.Epoch, o.Epoch), cmp.Compare(s.Seq, o.Seq)) > 0
}

// String returns the sight in the format of lua/seen.lua.
func (s Sight) String() string { return fmt.Sprintf("%d %d", s.Epoch, s.Seq) }

// parseSight parses the result of String. Any other text is no sight.
func parseSight(text string) (s Sight) {
	if n, err := fmt.Sscanf(text, "%d %d", &s.Epoch, &s.Seq); n != 2 || err != nil {
		return Sight{}
	}
	return s
}

// saw records the highest seq of each epoch that this process has seen. Otherwise the events of a later epoch would
// hide that an event of an earlier epoch was lost.
func (st *state) saw(epoch, seq int64) {
	if epoch < st.least.Load() {
		return
	}
	last := st.last.Load()
	if last != nil && last.epoch == epoch {
		raise(&last.seq, seq)
		return
	}
	has, _ := st.epochs.LoadOrStore(epoch, &epochSeen{epoch: epoch})
	e := has.(*epochSeen) //nolint:forcetypeassert // all values are *epochSeen
	raise(&e.seq, seq)
	for (last == nil || last.epoch < epoch) && !st.last.CompareAndSwap(last, e) {
		last = st.last.Load()
	}
}

// sawOpening records the seq and epoch in a reply to an HMGET of openingFields. It ignores unreadable values.
func (st *state) sawOpening(v []any) {
	seq, _ := v[0].(string)
	epoch, _ := v[1].(string)
	s, errSeq := strconv.ParseInt(seq, 10, 64)
	e, errEpoch := strconv.ParseInt(epoch, 10, 64)
	if errSeq != nil || errEpoch != nil {
		return
	}
	st.saw(e, s)
	has, seen := st.epochs.Load(e)
	if !seen || has.(*epochSeen).began.Load() > 0 { //nolint:forcetypeassert // all values are *epochSeen
		return
	}
	skipped, _ := v[slices.Index(openingFields, skippedField)].(string)
	list, err := parseSkipped(skipped)
	for _, r := range list {
		if err == nil && r.epoch == e {
			raise(&has.(*epochSeen).began, r.Last) //nolint:forcetypeassert // all values are *epochSeen
		}
	}
}

// known returns the latest event that this process has seen, or the zero Sight if it has seen none.
func (st *state) known() Sight {
	e := st.last.Load()
	if e == nil {
		return Sight{}
	}
	return Sight{Epoch: e.epoch, Seq: e.seq.Load()}
}

func raise(to *atomic.Int64, n int64) {
	for {
		was := to.Load()
		if n <= was || to.CompareAndSwap(was, n) {
			return
		}
	}
}

// lateEvent is an event that this process saw before an opening of its shard lost it. skipped is a seq of the range
// that the opening skipped: the event's, or the range's last if that is lower. The zero value is none.
type lateEvent struct {
	Sight

	skipped int64
}

// late returns an event that this process saw and that an opening has lost, unless an operator has accepted the loss.
// If there are several, it returns the one with the highest seq. The last seq of a skipped range does not count, nor does
// that of an opening which Redis has lost since (began): no event has it.
func (st *state) late(skipped *Skips) (late lateEvent) {
	st.epochs.Range(func(_, v any) bool {
		e := v.(*epochSeen) //nolint:forcetypeassert // all values are *epochSeen
		s := e.seq.Load()
		r, lost := skipped.lost(e.epoch, stream.SeqRange{First: s, Last: s})
		if lost && !r.accepted && s != r.Last && s != e.began.Load() {
			late.raise(e.epoch, s, &r)
		}
		return true
	})
	st.lateReported(skipped, &late)
	return late
}

// raise replaces l by an event of an epoch that the opening of r has lost, if the event has a higher seq.
func (l *lateEvent) raise(epoch, seq int64, r *skippedRange) {
	if seq > l.Seq {
		*l = lateEvent{Sight{epoch, seq}, min(seq, r.Last)}
	}
}

// saw records events that the caller has read from the stream. If the shard's seq is lower later, Redis went back in
// time. The events are recorded for the epoch of the caller's batch, which is their epoch or a later one. Without a
// batch it is the epoch that this process has last seen; a process that has seen none reads it.
func (k *Shard) saw(ctx context.Context, events ...stream.SeqRange) {
	epoch := k.epoch
	if epoch == 0 {
		if k.state.last.Load() == nil {
			_, _ = k.Head(ctx) // if this fails, the shard is missing or out of reach, and the caller's script fails too
		}
		if epoch = k.state.known().Epoch; epoch == 0 {
			return
		}
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

// epochText returns the caller's epoch for a script; empty if the caller works in no particular one.
func (k *Shard) epochText() string {
	if k.epoch == 0 {
		return ""
	}
	return strconv.FormatInt(k.epoch, 10)
}

// run calls a script of the shard. It adds the arguments of lua/guard.lua: meta, the caller's epoch and the latest
// event that the caller has seen. For a script with an inline guard, the caller adds them.
func (k *Shard) run(ctx context.Context, s *script, keys []string, args []any) ([]string, error) {
	if s.guard == unguarded {
		return s.runPlain(ctx, k.rdb, keys, args)
	}
	if until := k.state.frozen.Load(); until != 0 && time.Now().UnixNano() < until {
		return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], frozenError("it was frozen a moment ago"))
	}
	if s.guard == guarded {
		seen := k.state.known()
		keys, args = append(keys, k.Keys.Meta()), append(args, k.epochText(), seen.Epoch, seen.Seq)
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

// askOpen checks whether other reads in the same pipeline can be trusted. The caller must queue them after askOpen.
// After the pipeline has run, judge returns ErrFrozen if the shard is frozen or missing, or was opened for a
// different server. In these cases the present server may have lost data.
func (k *Shard) askOpen(ctx context.Context, pipe redis.Pipeliner) (judge func() error) {
	return k.askOpenOn(ctx, pipe, pipe.Info(ctx, "server", "replication"))
}

// askOpenOn is askOpen for a pipeline that already has an INFO command.
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
	z, err := freezeOn(ctx, conn, k, &server, reasons{})
	if err != nil {
		return "", "", err
	}
	if !z.Frozen { // another process has just opened it
		return server.RunID, "", nil
	}
	return "", z.why(), nil
}
