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

// Shard is one shard of a deployment on its Redis. It has one method for each script, and methods that only read.
type Shard struct {
	Keys Keys

	store *Store
	rdb   redis.UniversalClient // the store's
	state *state
	epoch int64 // see At; 0 if the caller works in no particular epoch
}

// At returns the shard for work on entries that were read in the given epoch. If the shard has a later epoch, its
// scripts change nothing and return ErrStale.
func (k *Shard) At(epoch int64) *Shard {
	at := *k
	at.epoch = epoch
	return &at
}

// Epoch returns the epoch that At has set, or 0.
func (k *Shard) Epoch() int64 { return k.epoch }

// guard is the kind of check that runs before a script.
type guard int

const (
	guarded   guard = iota // lua/guard.lua
	inline                 // the script itself has the guard's checks
	unguarded              // no check: the script belongs to no shard, or it must run on a frozen one
)

// script is a Lua script, with the files that it includes.
type script struct {
	name, src string
	guard     guard
	drain     bool // runs even when Redis is out of memory
	once      bool // the client sends a call at most once, whatever its number of retries
}

var scripts []*script

// newScript returns the script of that name, with the text of the included files before its own.
func newScript(name string, includes ...string) *script {
	s := &script{name: name}
	for _, include := range includes {
		s.src += lua.Source(include)
	}
	s.src += lua.Source(name)
	scripts = append(scripts, s)
	return s
}

// newDrainScript is newScript for scripts that finish work, trim, or carry out a person's repair. They run even when
// Redis is out of memory. Otherwise the events that fill the memory could never be finished and trimmed. These scripts
// need little memory, and nearly all free it again.
func newDrainScript(name string, includes ...string) *script {
	s := newScript(name, includes...)
	s.drain = true
	return s
}

func (s *script) with(g guard) *script {
	s.guard = g
	return s
}

// sentOnce makes the client send a call of the script at most once. So the error of a call shows whether Redis may have
// carried it out, and the caller, which repeats the call itself, can count its tries.
func (s *script) sentOnce() *script {
	s.once = true
	return s
}

const allowOOM = "#!lua flags=allow-oom\n"

// runPlain calls an unguarded script by its SHA-1. If the server does not know the script, it has done nothing, and
// runPlain sends the script's text.
func (s *script) runPlain(ctx context.Context, rdb redis.Scripter, keys []string, args []any) ([]string, error) {
	t := textsFor("", false)
	cmd := rdb.EvalSha(ctx, t.sha[s], keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = rdb.Eval(ctx, t.text(s), keys, args...)
	}
	// miniredis does not support script flags, and has not run anything.
	if s.drain && redis.HasErrorPrefix(cmd.Err(), "Error compiling script") {
		cmd = rdb.Eval(ctx, textsFor("", true).text(s), keys, args...)
	}
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("script %s on %s: %w", s.name, keys[0], s.classify(rdb, err))
	}
	return flatten(s.name, v)
}

// caller is what call needs: a client or a pipeline.
type caller interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// unrepeated is a command that go-redis does not send again.
type unrepeated struct{ *redis.Cmd }

// NoRetry overrides the method of Cmd.
func (unrepeated) NoRetry() bool { return true }

// call calls the script by its SHA-1. In a pipeline it queues the call.
func (s *script) call(ctx context.Context, on caller, sha string, keys []string, args []any) *redis.Cmd {
	if !s.once {
		return on.EvalSha(ctx, sha, keys, args...)
	}
	all := make([]any, 3, 3+len(keys)+len(args))
	all[0], all[1], all[2] = "evalsha", sha, len(keys)
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)                // a cluster client needs it
	_ = on.Process(ctx, unrepeated{cmd}) // cmd has the error
	return cmd
}

// flatten returns a script's reply as a list. Every reply is a flat array of strings, or one string.
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

// Classify adds a class to the error of a Redis call. If the call certainly changed nothing, the class is Transient
// or Broken. If the connection failed during the call, it is Unknown. Errors that may disappear without intervention
// are outages.
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

// classify is Classify for a call that the client may have retried automatically. The error of the last try does not
// show what an earlier try did. So a Transient error becomes Unknown, and still wraps ErrFrozen or ErrStale where they
// apply. ErrNoGroup stays Transient, because the caller has to create the group.
func (s *script) classify(rdb redis.Scripter, err error) error {
	classed := Classify(err)
	if s.once || !repeats(rdb) || hongbao.ClassOf(classed) != hongbao.ClassTransient || errors.Is(classed, ErrNoGroup) {
		return classed
	}
	return hongbao.Outagef(hongbao.ClassUnknown, "redis failed, and the client may have called it before: %w", classed)
}

// repeats reports whether the client may send a call more than once. A cluster client also uses its redirects to
// retry after a broken connection.
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

// transientReplies are error replies of calls that did nothing and that may succeed later.
var transientReplies = []string{
	"OOM", "MOVED", "ASK", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF",
	"UNBLOCKED",                     // the stream was deleted, or the primary demoted, during a blocking read
	"max number of clients reached", // has the generic code ERR; the connection was refused
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
		return hongbao.Errorf(hongbao.ClassBroken, "a key of Hongbao has another type, nothing was changed; "+
			"look at it with TYPE and remove what does not belong there: %w", err)
	}
	return hongbao.Errorf(hongbao.ClassBroken, "redis refused: %w", err)
}

// IsOutOfMemory reports whether Redis refused a write because it has reached maxmemory.
func IsOutOfMemory(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// ErrNoGroup says that the consumer group, or the whole stream, does not exist.
var ErrNoGroup = errors.New("the consumer group does not exist")
