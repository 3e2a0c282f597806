package access

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
)

// How old the list of keys and sessions may be.
const (
	// maxAge is when it is good for nothing any more, so a key that was revoked is dead.
	maxAge = 10 * time.Second
	// renewAge is when the next request reads it again, while the others go on with the old one.
	renewAge = 5 * time.Second
	// unknownAge is how soon it is read again for a key or a session that it does not have.
	unknownAge = time.Second
	// readTimeout bounds one reading.
	readTimeout = 2 * time.Second
)

// Source gives the keys that are not revoked or expired. The ledger has it.
type Source interface {
	LiveKeys(ctx context.Context) ([]Key, error)
}

// Authority says who a caller is. It holds all live keys and reads them again every few seconds, so a request costs the
// ledger nothing, whatever it brings. A key that is revoked is dead after 10 seconds at most; a new one is good after
// one second. With the ledger away the last list is good until it is 10 seconds old.
//
// All methods may be called at once.
type Authority struct {
	source  Source
	now     func() time.Time
	list    atomic.Pointer[list]
	reading chan struct{} // holds one token: of the request that reads
	failed  atomic.Pointer[failure]
}

// list is what the ledger had at a time.
type list struct {
	keys map[string]*Key
	read time.Time // before it was read: what was revoked meanwhile may be in it
}

// failure is the last reading that failed.
type failure struct {
	err error
	at  time.Time
}

// NewAuthority makes an Authority over a source; it reads nothing yet.
func NewAuthority(source Source) *Authority {
	return &Authority{source: source, now: time.Now, reading: make(chan struct{}, 1)}
}

// Identify says whose API key a text is. ErrUnauthorized says that it is not good here, whatever is wrong with it. A
// Transient error says that the ledger can't be asked: the key may be good.
func (a *Authority) Identify(ctx context.Context, keyText string) (Caller, error) {
	id, secret, ok := split(keyText)
	if !ok {
		return Caller{}, refused(ErrUnauthorized)
	}
	l, err := a.current(ctx, func(l *list) bool { return l.keys[id] != nil })
	if err != nil {
		return Caller{}, err
	}
	now := a.now()
	k := l.keys[id]
	if k == nil || !k.live(now) || !k.opens(secret, now) {
		return Caller{}, refused(ErrUnauthorized)
	}
	return Caller{Key: k.ID, Role: k.Role, Campaigns: k.Campaigns}, nil
}

// current gives a list that is young enough. has tells whether a list has what is looked for; if it has not, the list
// is read again a second after it was read last.
func (a *Authority) current(ctx context.Context, has func(*list) bool) (*list, error) {
	l := a.list.Load()
	age := maxAge
	if l != nil {
		age = a.now().Sub(l.read)
	}
	if age < unknownAge || age < renewAge && has(l) {
		return l, nil
	}
	usable := age < maxAge && has(l)
	select {
	case a.reading <- struct{}{}:
	default:
		if usable {
			return l, nil // somebody reads it already
		}
		select {
		case a.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, hongbao.Outagef(hongbao.ClassTransient, "the API keys were still being read: %w", ctx.Err())
		}
	}
	defer func() { <-a.reading }()
	if newer := a.list.Load(); newer != l {
		return newer, nil // read while we waited
	}
	fresh, err := a.read(ctx)
	if err != nil && age < maxAge {
		return l, nil
	}
	return fresh, err
}

// read reads the list, but not at once again after a failure: those who waited for that one share its answer.
func (a *Authority) read(ctx context.Context) (*list, error) {
	now := a.now()
	if f := a.failed.Load(); f != nil && now.Sub(f.at) < unknownAge {
		return nil, f.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	keys, err := a.source.LiveKeys(ctx)
	if err != nil {
		err = hongbao.Outagef(hongbao.ClassTransient, "read the API keys from the ledger: %w", err)
		a.failed.Store(&failure{err, a.now()})
		return nil, err
	}
	l := &list{keys: make(map[string]*Key, len(keys)), read: now}
	for i := range keys {
		l.keys[keys[i].ID] = &keys[i]
	}
	a.list.Store(l)
	return l, nil
}
