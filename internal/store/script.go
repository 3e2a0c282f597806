package store

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// Shard is one shard of a deployment on its Redis: one method a script, and the reads that go with them.
type Shard struct {
	Keys Keys

	store *Store
	rdb   redis.UniversalClient // the store's
	state *state
}

// guard says what stands in front of a script.
type guard int

const (
	guarded   guard = iota // lua/guard.lua
	inline                 // the script has the guard's checks in itself
	unguarded              // nothing: it belongs to no shard, or it is there to freeze and open one
)

// script is one Lua file.
type script struct {
	name, src string
	guard     guard
	drain     bool // it runs when Redis is out of memory too
}

var scripts []*script

// newScript takes the script of that name, with the functions of others in front of it.
func newScript(name string, includes ...string) *script {
	s := &script{name: name}
	for _, include := range includes {
		s.src += lua.Source(include)
	}
	s.src += lua.Source(name)
	scripts = append(scripts, s)
	return s
}

// newDrainScript is for scripts that bring work to its end: Redis runs them when it is out of memory too, or the events
// that fill it could never be finished and trimmed. They grow it by little, and give it back.
func newDrainScript(name string, includes ...string) *script {
	s := newScript(name, includes...)
	s.drain = true
	return s
}

func (s *script) with(g guard) *script {
	s.guard = g
	return s
}

const allowOOM = "#!lua flags=allow-oom\n"

// runPlain calls an unguarded script by its SHA-1; if the server does not know it (and then it surely did nothing), by
// its text.
func (s *script) runPlain(ctx context.Context, rdb redis.Scripter, keys []string, args []any) ([]string, error) {
	t := textsFor("", false)
	cmd := rdb.EvalSha(ctx, t.sha[s], keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = rdb.Eval(ctx, t.text(s), keys, args...)
	}
	// miniredis does not know flags; nothing was run yet
	if s.drain && redis.HasErrorPrefix(cmd.Err(), "Error compiling script") {
		cmd = rdb.Eval(ctx, textsFor("", true).text(s), keys, args...)
	}
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], classifyCall(rdb, err))
	}
	return flatten(s.name, v)
}

// flatten takes the reply of a script: every one is a flat array of strings, or one string.
func flatten(name string, v any) ([]string, error) {
	if text, ok := v.(string); ok {
		return []string{text}, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("script %s answered %T, want an array", name, v)
	}
	out := make([]string, len(list))
	for i := range list {
		if out[i], ok = list[i].(string); !ok {
			return nil, fmt.Errorf("script %s answered %T as element %d, want a string", name, list[i], i)
		}
	}
	return out, nil
}

// Classify gives an error of a Redis call its class. What the server refused before it did anything is Transient or
// Broken; a connection that failed under way is Unknown, and all that may pass by itself is an outage.
func Classify(err error) error {
	var reply redis.Error
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return err
	case errors.As(err, &reply):
		return classifyReply(err)
	case isDialError(err):
		return hongbao.Outagef(hongbao.ClassTransient, "redis can't be reached: %w", err)
	case errors.Is(err, redis.ErrPoolTimeout):
		return hongbao.Outagef(hongbao.ClassTransient, "no free connection to redis: %w", err)
	}
	return hongbao.Outagef(hongbao.ClassUnknown, "redis did not answer: %w", err)
}

// classifyCall is Classify for a call that the client may have repeated by itself: then its last error, a connection
// that could not even be made, does not say that nothing happened at the first try. It still says what the shard
// is: ErrFrozen or ErrStale. A group that is missing stays ErrNoGroup: the caller has to make it.
func classifyCall(rdb redis.Scripter, err error) error {
	classed := Classify(err)
	if !repeats(rdb) || hongbao.ClassOf(classed) != hongbao.ClassTransient || errors.Is(classed, ErrNoGroup) {
		return classed
	}
	return hongbao.Outagef(hongbao.ClassUnknown, "redis failed, and the client may have called it before: %w", classed)
}

// repeats tells whether the client may call more than once. A cluster's goes on as for a redirect when a connection
// breaks.
func repeats(rdb redis.Scripter) bool {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.Options().MaxRedirects > 0
	case interface{ Options() *redis.Options }:
		return c.Options().MaxRetries > 0
	}
	return false
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// transientReplies are error replies that say that nothing was done and that it may work later.
var transientReplies = []string{
	"OOM", "MOVED", "ASK", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF",
	"UNBLOCKED",                     // the stream, or the primary, went away under a read that waited
	"max number of clients reached", // this one has no code; the connection was refused
}

func classifyReply(err error) error {
	for _, prefix := range transientReplies {
		if redis.HasErrorPrefix(err, prefix) {
			return hongbao.Outagef(hongbao.ClassTransient, "redis refused for now: %w", err)
		}
	}
	if redis.HasErrorPrefix(err, "HBFROZEN") {
		return hongbao.Outagef(hongbao.ClassTransient, "%w: %w", ErrFrozen, err)
	}
	if redis.HasErrorPrefix(err, "HBEPOCH") {
		return hongbao.Outagef(hongbao.ClassTransient, "%w: %w", ErrStale, err)
	}
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return hongbao.Errorf(hongbao.ClassTransient, "%w: %w", ErrNoGroup, err)
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return hongbao.Errorf(hongbao.ClassBroken, "a key of Hongbao holds another type, nothing was changed; "+
			"look at it with TYPE and remove what does not belong there: %w", err)
	}
	return hongbao.Errorf(hongbao.ClassBroken, "redis refused: %w", err)
}

// IsOutOfMemory tells whether Redis refused a write because it has reached maxmemory.
func IsOutOfMemory(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// ErrNoGroup says that the consumer group, or the whole stream, is not there.
var ErrNoGroup = errors.New("the consumer group does not exist")
