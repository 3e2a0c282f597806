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

// Session is a session of the console as the ledger has it. Only its browser has its id.
type Session struct {
	// Hash is the SHA-256 of the id.
	Hash string
	// Key is the API key that began it. SecretHash is the SHA-256 of the secret that was used. The session ends with
	// that secret.
	Key, SecretHash string
	Expires         time.Time
}

// StartSession begins a session of the console for the owner of an API key. The id goes into a cookie; it is stored
// nowhere. Every replica knows the session. It ends with EndSession, with the secret that began it, or when its time is
// over. If the key is not valid the error is that of Identify.
func (a *Authority) StartSession(ctx context.Context, keyText string, lasts time.Duration) (id string, err error) {
	if _, err := a.Identify(ctx, keyText); err != nil {
		return "", err
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	id = hex.EncodeToString(b[:])
	key, secret, _ := split(keyText)
	s := Session{Hash: Hash(id), Key: key, SecretHash: Hash(secret), Expires: time.Now().Add(lasts)}
	err = a.change(ctx, func(ctx context.Context) error { return a.source.AddSession(ctx, s) },
		func(l *list) { l.sessions[s.Hash] = s })
	if err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	return id, nil
}

// Session returns the caller that a session belongs to. Its errors are those of Identify.
func (a *Authority) Session(ctx context.Context, id string) (Caller, error) {
	if len(id) != 64 {
		return Caller{}, refused(ErrUnauthorized)
	}
	return a.caller(ctx, func(l *list) *Key {
		now := time.Now()
		s, ok := l.sessions[Hash(id)]
		k := l.keys[s.Key]
		if !ok || !now.Before(s.Expires) || k == nil || !k.live(now) || !k.hashed(s.SecretHash, now) {
			return nil
		}
		return k
	})
}

// EndSession ends a session; other replicas accept it for at most 10 more seconds. A missing session is no error.
func (a *Authority) EndSession(ctx context.Context, id string) error {
	hash := Hash(id)
	err := a.change(ctx, func(ctx context.Context) error { return a.source.EndSession(ctx, hash) },
		func(l *list) { delete(l.sessions, hash) })
	if err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// change changes the ledger, then the list. No request reads the list in between, so no older list replaces it.
func (a *Authority) change(ctx context.Context, store func(context.Context) error, note func(*list)) error {
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return hongbao.Outagef(hongbao.ClassTransient, "the ledger was still being asked: %w", ctx.Err())
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
