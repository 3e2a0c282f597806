package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Session is a console session as the ledger stores it. Only the browser knows the session id.
type Session struct {
	// Hash is the SHA-256 of the id.
	Hash string
	// Key is the id of the API key that started the session. SecretHash is the SHA-256 of the secret that was used.
	// When that secret becomes invalid, the session ends.
	Key, SecretHash string
	// Begun is the time of the login. KeepSession moves Expires.
	Begun, Expires time.Time
	// Campaign is not empty if the session is a link: whoever has it sees the page of this campaign and nothing else, with
	// amounts if Money is set. Why says for whom it was made. A link begins without a login, and its end does not move.
	Campaign string
	Money    bool
	Why      string
}

// ID names a link for people. It opens nothing.
func (s *Session) ID() string { return s.Hash[:min(len(s.Hash), 8)] }

// SessionTimes limit a session.
type SessionTimes struct {
	// Lasts is the longest time from the login to the end. Idle is the longest time without a request.
	Lasts, Idle time.Duration
}

// end returns the end of a session that began at begun, if now is its last request.
func (t SessionTimes) end(begun, now time.Time) time.Time {
	if last := begun.Add(t.Lasts); now.Add(t.Idle).After(last) {
		return last
	}
	return now.Add(t.Idle)
}

// StartSession starts a console session for the owner of an API key. The returned id goes into a cookie and is not
// stored anywhere. Every replica accepts the session. The session ends with EndSession, when the secret becomes
// invalid, and at the limits of times. If the key is not valid, StartSession returns the error of Identify.
//
// While the ledger is unreachable, only this Authority accepts the session, and only for the actions that For describes.
// That session ends when the list is read again.
func (a *Authority) StartSession(ctx context.Context, keyText string, times SessionTimes) (id string, err error) {
	if _, err := a.Identify(ctx, keyText); err != nil {
		return "", err
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	id = hex.EncodeToString(b[:])
	key, secret, _ := split(keyText)
	now := time.Now()
	s := Session{Hash: Hash(id), Key: key, SecretHash: Hash(secret), Begun: now, Expires: times.end(now, now)}
	err = a.change(ctx, func(ctx context.Context) error {
		err := a.source.AddSession(ctx, s)
		if err != nil && a.unreachable.Load() { // the list is not read again before the ledger is back
			return nil
		}
		return err
	}, func(l *list) { l.sessions[s.Hash] = s })
	if err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	return id, nil
}

// Session returns the caller that a session belongs to. It returns the same errors as Identify.
func (a *Authority) Session(ctx context.Context, id string) (Caller, error) {
	if len(id) != 64 {
		return Caller{}, refused(ErrUnauthorized)
	}
	return a.caller(ctx, func(l *list) *Key {
		s, k := l.session(id)
		if s.Campaign != "" {
			return nil
		}
		return k
	})
}

// session returns a session, and the key that it belongs to; nil if either has ended.
func (l *list) session(id string) (Session, *Key) {
	s := l.sessions[Hash(id)]
	return s, l.owner(s)
}

// owner returns the key that a live session belongs to; nil if the session or its key has ended.
func (l *list) owner(s Session) *Key {
	now := time.Now()
	k := l.keys[s.Key]
	if !now.Before(s.Expires) || k == nil || !k.live(now) || !k.matches(s.SecretHash, now) {
		return nil
	}
	return k
}

// keepEvery is the fraction of SessionTimes.Idle after which a request stores the new end of its session, so that not
// each request writes into the ledger.
const keepEvery = 30

// KeepSession notes a request of a session, which moves its end for every replica. If the ledger is down, the end
// stays.
func (a *Authority) KeepSession(ctx context.Context, id string, times SessionTimes) error {
	l := a.list.Load()
	if l == nil || a.unreachable.Load() {
		return nil
	}
	s, ok := l.sessions[Hash(id)]
	end := times.end(s.Begun, time.Now())
	if !ok || s.Campaign != "" || end.Sub(s.Expires) < times.Idle/keepEvery {
		return nil
	}
	s.Expires = end
	err := a.change(ctx, func(ctx context.Context) error { return a.source.KeepSession(ctx, s.Hash, s.Expires) },
		func(l *list) {
			if _, ok := l.sessions[s.Hash]; ok { // a logout may have ended it meanwhile
				l.sessions[s.Hash] = s
			}
		})
	if err != nil {
		return fmt.Errorf("keep a session: %w", err)
	}
	return nil
}

// EndSession ends a session. Other replicas accept it for up to 10 more seconds. Ending a missing session is not an
// error.
func (a *Authority) EndSession(ctx context.Context, id string) error {
	return a.end(ctx, Hash(id))
}

// end ends a session or a link by its hash.
func (a *Authority) end(ctx context.Context, hash string) error {
	err := a.change(ctx, func(ctx context.Context) error { return a.source.EndSession(ctx, hash) },
		func(l *list) { delete(l.sessions, hash) })
	if err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// change changes the ledger, then the cached list. It holds reading meanwhile, so that no concurrent read replaces the
// list with an older one.
func (a *Authority) change(ctx context.Context, store func(context.Context) error, note func(*list)) error {
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return hongbao.Outagef(hongbao.ClassTransient, "another request was still using the ledger: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := store(ctx); err != nil {
		return err
	}
	if l := a.list.Load(); l != nil {
		changed := *l
		changed.sessions = maps.Clone(l.sessions)
		note(&changed)
		a.list.Store(&changed)
	}
	return nil
}
