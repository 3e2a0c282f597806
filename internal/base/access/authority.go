package access

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Ages and time limits of the cached list of keys and sessions.
const (
	// maxAge is the age from which the list is no longer valid. So a revoked key works for at most this long.
	maxAge = 10 * time.Second
	// outageAge replaces maxAge after a read of the ledger has failed, for the actions that must work without the ledger
	// (see For). Keys revoked during this time keep working if the ledger is unreachable from this server only.
	outageAge = 15 * time.Minute
	// renewAge is the age from which the next request reads the list again. Concurrent requests use the old list
	// meanwhile.
	renewAge = 5 * time.Second
	// unknownAge is the minimum age of the list before a request with an unknown key or session reads it again.
	unknownAge = 200 * time.Millisecond
	// failedAge is the minimum time between a failed read and the next attempt.
	failedAge = time.Second
	// readTimeout limits one read of the ledger.
	readTimeout = 2 * time.Second
)

// Live are the keys and sessions that are neither revoked nor expired.
type Live struct {
	Keys     []Key
	Sessions []Session
}

// Source stores the keys and sessions. In production it is the ledger.
type Source interface {
	Live(ctx context.Context) (Live, error)
	AddSession(ctx context.Context, s Session) error
	KeepSession(ctx context.Context, hash string, expires time.Time) error
	EndSession(ctx context.Context, hash string) error
}

// Authority identifies callers. It caches all live keys and sessions in memory and reads them again every few seconds,
// so most requests do not touch the ledger. An unknown key triggers another read, at most 5 times a second in total. A
// revoked key stops working after at most 10 seconds. While the ledger is unreachable, the cached list stays valid for
// 10 seconds, and for some actions for 15 minutes: see For.
//
// All methods are safe for concurrent use.
type Authority struct {
	source      Source
	list        atomic.Pointer[list]
	reading     chan struct{} // used as a mutex: held while a request reads the list or changes a session
	failed      failure       // guarded by reading
	unreachable atomic.Bool   // the last read failed
	reads       atomic.Int64  // number of reads that have started
}

type forKey struct{}

// For returns ctx with the action for which Identify identifies the caller. While the ledger is unreachable, keys from
// a list up to 15 minutes old still work for some actions. So operators can still see and pause campaigns and sinks,
// and a gateway's users can grab. A client of the balance API is told that the ledger is down, instead of
// "unauthorized".
func For(ctx context.Context, a Action) context.Context { return context.WithValue(ctx, forKey{}, a) }

// oldest returns the maximum age of a list that is valid for the action of ctx.
func (a *Authority) oldest(ctx context.Context) time.Duration {
	if action, _ := ctx.Value(forKey{}).(Action); a.unreachable.Load() && ruleOf(action).WithoutLedger {
		return outageAge
	}
	return maxAge
}

// list is a snapshot of the ledger's keys and sessions. It is immutable.
type list struct {
	keys     map[string]*Key
	sessions map[string]Session
	read     time.Time // start of the read: a key revoked since then may still be in the list
	number   int64     // the value of reads when this list was read
}

// failure records the last failed read.
type failure struct {
	err error
	at  time.Time
}

// NewAuthority returns an Authority over a source. It reads the source only when the first request comes.
func NewAuthority(source Source) *Authority {
	return &Authority{source: source, reading: make(chan struct{}, 1)}
}

// Identify returns the caller that an API key belongs to. It returns ErrUnauthorized if the key is not valid here, for
// whatever reason. It returns a Transient error if the ledger can't be read: the key may still be valid.
func (a *Authority) Identify(ctx context.Context, keyText string) (Caller, error) {
	id, secret, ok := split(keyText)
	if !ok {
		return Caller{}, refused(ErrUnauthorized)
	}
	hash := Hash(secret)
	return a.caller(ctx, func(l *list) *Key {
		now := time.Now()
		if k := l.keys[id]; k != nil && k.live(now) && k.matches(hash, now) {
			return k
		}
		return nil
	})
}

// Ready returns an error if the ledger has been unreachable for 10 seconds. While the ledger fails, Ready reads it at
// most once a second.
func (a *Authority) Ready(ctx context.Context) error {
	_, err := a.current(ctx, func(*list) bool { return true })
	return err
}

// Refresh keeps the list young until ctx ends. So a process without requests has a list when the ledger goes down.
func (a *Authority) Refresh(ctx context.Context) {
	for more := true; more; more = retry.Pause(ctx, renewAge) {
		_, _ = a.current(ctx, func(*list) bool { return true }) // while it fails, requests report it
	}
}

// Ends returns the next end of a live key of each role. It reads the ledger like a request. While the ledger is
// unreachable, it returns the ends from the last list. It leaves out keys without an end, and keys that were made for
// at most EndsSoon: their end surprises no one.
func (a *Authority) Ends(ctx context.Context) map[Role]time.Time {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	l, err := a.current(ctx, func(*list) bool { return true })
	if err != nil {
		l = a.list.Load()
	}
	ends := map[Role]time.Time{}
	if l == nil {
		return ends
	}
	for _, k := range l.keys {
		next, has := ends[k.Role]
		if k.live(time.Now()) && k.Expires.Sub(k.Created) > EndsSoon && (!has || k.Expires.Before(next)) {
			ends[k.Role] = k.Expires
		}
	}
	return ends
}

// caller returns the owner of the key that find selects from the list.
func (a *Authority) caller(ctx context.Context, find func(*list) *Key) (Caller, error) {
	l, err := a.current(ctx, func(l *list) bool { return find(l) != nil })
	if err != nil {
		return Caller{}, err
	}
	if k := find(l); k != nil {
		return Caller{Key: k.ID, Role: k.Role, Campaigns: k.Campaigns, Expires: k.Expires, Client: k.Client,
			Spending: k.Spending}, nil
	}
	return Caller{}, refused(ErrUnauthorized)
}

// current returns a list that is young enough and in which has finds its key. If there is none, it returns a list whose
// read began after the call.
func (a *Authority) current(ctx context.Context, has func(*list) bool) (*list, error) {
	begun, reads := time.Now(), a.reads.Load()
	l := a.list.Load()
	found := l != nil && has(l)
	if found && begun.Sub(l.read) < renewAge {
		return l, nil
	}
	select {
	case a.reading <- struct{}{}:
	default:
		if found && begun.Sub(l.read) < a.oldest(ctx) {
			return l, nil // another request is reading the list
		}
		select {
		case a.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, hongbao.Outagef(hongbao.ClassTransient, "the API keys were still being read: %w", ctx.Err())
		}
	}
	defer func() { <-a.reading }()
	if l = a.list.Load(); l != nil && (l.number > reads || has(l) && time.Since(l.read) < renewAge) {
		return l, nil // another request has read the list while this call waited
	}
	fresh, err := a.read(ctx, l)
	if err != nil && l != nil && has(l) && time.Since(l.read) < a.oldest(ctx) {
		return l, nil
	}
	return fresh, err
}

// read reads the list from the ledger. It waits until the last list is unknownAge old, and returns the last error again
// until failedAge has passed.
func (a *Authority) read(ctx context.Context, last *list) (*list, error) {
	if a.failed.err != nil && time.Since(a.failed.at) < failedAge {
		return nil, a.failed.err
	}
	if last != nil && !retry.Pause(ctx, unknownAge-time.Since(last.read)) {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "the API keys were not read again: %w", context.Cause(ctx))
	}
	now, number := time.Now(), a.reads.Add(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	live, err := a.source.Live(ctx)
	a.unreachable.Store(err != nil)
	if err != nil {
		err = hongbao.Outagef(hongbao.ClassTransient, "read the API keys from the ledger: %w", err)
		a.failed = failure{err, time.Now()}
		return nil, err
	}
	a.failed = failure{}
	l := &list{keys: make(map[string]*Key, len(live.Keys)), sessions: make(map[string]Session, len(live.Sessions)),
		read: now, number: number}
	for i := range live.Keys {
		l.keys[live.Keys[i].ID] = &live.Keys[i]
	}
	for _, s := range live.Sessions {
		l.sessions[s.Hash] = s
	}
	a.list.Store(l)
	return l, nil
}
