package access

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Ages of the list of keys and sessions.
const (
	// maxAge is when the list is no longer valid, so a revoked key no longer works.
	maxAge = 10 * time.Second
	// awayAge replaces maxAge for the actions of For that must work while the ledger is unreachable, once a reading has
	// failed. No one can revoke a key then, unless the ledger is unreachable only for this server.
	awayAge = 15 * time.Minute
	// renewAge is when the next request reads the list again, while the others continue with the old one.
	renewAge = 5 * time.Second
	// unknownAge is how soon the list is read again for a key or a session that it does not have.
	unknownAge = 200 * time.Millisecond
	// failedAge is how soon the list is read again after a failure.
	failedAge = time.Second
	// readTimeout bounds one reading.
	readTimeout = 2 * time.Second
)

// Live are the keys and sessions that are neither revoked nor expired.
type Live struct {
	Keys     []Key
	Sessions []Session
}

// Source has the keys and sessions. It is the ledger.
type Source interface {
	Live(ctx context.Context) (Live, error)
	AddSession(ctx context.Context, s Session) error
	EndSession(ctx context.Context, hash string) error
}

// Authority identifies callers. It keeps all live keys and sessions in memory and reads them again every few seconds,
// so a request costs the ledger nothing. For an unknown key it reads them once more, at most 5 times a second, however
// many unknown keys come. A revoked key stops working after at most 10 seconds. While the ledger is unreachable, the
// last list is valid until it is 10 seconds old, and for some actions for 15 minutes: see For.
//
// All methods are safe for concurrent use.
type Authority struct {
	source  Source
	list    atomic.Pointer[list]
	reading chan struct{} // contains one token: of the request that reads, or changes something
	failed  failure       // guarded by the token
	away    atomic.Bool   // the last reading failed
	reads   atomic.Int64  // how many readings have begun
}

type forKey struct{}

// For returns ctx with the action for which a caller is to be identified. While the ledger is unreachable, the keys of
// the last 15 minutes still work for some actions. With them campaigns and sinks can be seen and paused, a gateway's
// users can grab, and a client of the balance API gets the answer that the ledger is down.
func For(ctx context.Context, a Action) context.Context { return context.WithValue(ctx, forKey{}, a) }

// oldest returns the maximum age of a list that is valid for the action of ctx.
func (a *Authority) oldest(ctx context.Context) time.Duration {
	if action, _ := ctx.Value(forKey{}).(Action); a.away.Load() && ruleOf(action).Away {
		return awayAge
	}
	return maxAge
}

// list is the ledger's data at a time. It is never changed.
type list struct {
	keys     map[string]*Key
	sessions map[string]Session
	read     time.Time // before it was read: keys revoked meanwhile may be in it
	number   int64     // of its reading
}

// failure is the last reading that failed.
type failure struct {
	err error
	at  time.Time
}

// NewAuthority returns an Authority over a source; it reads nothing yet.
func NewAuthority(source Source) *Authority {
	return &Authority{source: source, reading: make(chan struct{}, 1)}
}

// Identify returns the caller that an API key belongs to. ErrUnauthorized says that the key is not valid here, for
// whatever reason. A Transient error says that the ledger can't be asked: the key may be valid.
func (a *Authority) Identify(ctx context.Context, keyText string) (Caller, error) {
	id, secret, ok := split(keyText)
	if !ok {
		return Caller{}, refused(ErrUnauthorized)
	}
	hash := Hash(secret)
	return a.caller(ctx, func(l *list) *Key {
		now := time.Now()
		if k := l.keys[id]; k != nil && k.live(now) && k.hashed(hash, now) {
			return k
		}
		return nil
	})
}

// Ready returns an error if the ledger has not answered for 10 seconds. It reads the ledger at most once a second.
func (a *Authority) Ready(ctx context.Context) error {
	_, err := a.current(ctx, func(*list) bool { return true })
	return err
}

// caller returns the owner of the key that find finds.
func (a *Authority) caller(ctx context.Context, find func(*list) *Key) (Caller, error) {
	l, err := a.current(ctx, func(l *list) bool { return find(l) != nil })
	if err != nil {
		return Caller{}, err
	}
	if k := find(l); k != nil {
		return Caller{Key: k.ID, Role: k.Role, Campaigns: k.Campaigns, Client: k.Client, Spending: k.Spending}, nil
	}
	return Caller{}, refused(ErrUnauthorized)
}

// current returns a list that has what is looked for and is young enough, or one that was read after the call began.
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
			return l, nil // another request is reading it
		}
		select {
		case a.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, hongbao.Outagef(hongbao.ClassTransient, "the API keys were still being read: %w", ctx.Err())
		}
	}
	defer func() { <-a.reading }()
	if l = a.list.Load(); l != nil && (l.number > reads || has(l) && time.Since(l.read) < renewAge) {
		return l, nil // read while this call waited
	}
	fresh, err := a.read(ctx, l)
	if err != nil && l != nil && has(l) && time.Since(l.read) < a.oldest(ctx) {
		return l, nil
	}
	return fresh, err
}

// read reads the list, but not immediately after the last reading, or after one that failed.
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
	a.away.Store(err != nil)
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
