package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao/internal/payment"
	"github.com/hongbao-project/hongbao/internal/web"
)

// How old the list of valid tokens may be: before it is read again, and, while the ledger does not answer, for the
// server to count as ready.
const (
	tokensAge = time.Second
	readyAge  = 5 * time.Second
)

// tokens are the valid tokens of all clients, as the ledger had them a moment ago. A request costs the ledger
// nothing, whatever token it brings.
type tokens struct {
	source func(context.Context) ([]payment.ClientToken, error)
	list   atomic.Pointer[tokenList]
	mu     sync.Mutex // held by the one who reads
}

type tokenList struct {
	byHash map[string]*payment.ClientToken
	read   time.Time
}

// current gives the list. While somebody reads it, and while it can't be read, the last one is good: with the ledger
// away a revoked token books nothing either.
func (t *tokens) current(ctx context.Context) (*tokenList, error) {
	have := t.list.Load()
	switch {
	case have == nil:
		t.mu.Lock()
	case time.Since(have.read) < tokensAge || !t.mu.TryLock():
		return have, nil
	}
	defer t.mu.Unlock()
	if newer := t.list.Load(); newer != have {
		return newer, nil
	}
	now := time.Now() // before it is read: what is revoked meanwhile may be in it
	all, err := t.source(ctx)
	if err != nil && have != nil {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	list := &tokenList{byHash: make(map[string]*payment.ClientToken, len(all)), read: now}
	for i := range all {
		list.byHash[all[i].Hash] = &all[i]
	}
	t.list.Store(list)
	return list, nil
}

type healthAnswer struct {
	Status string `json:"status" enum:"ok"`
}

func (b *Balance) alive(w http.ResponseWriter, _ *http.Request) error {
	web.WriteJSON(w, http.StatusOK, healthAnswer{"ok"})
	return nil
}

// ready is GET /readyz: whether the ledger answers. However often it is asked, the ledger is asked once a second.
func (b *Balance) ready(w http.ResponseWriter, r *http.Request) error {
	list, err := b.tokens.current(r.Context())
	if err == nil && time.Since(list.read) > readyAge {
		err = errors.New("it has not answered since " + list.read.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return unread(err)
	}
	return b.alive(w, r)
}
