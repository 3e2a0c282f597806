package bank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// tokensAge is how old the list of valid tokens may be before it is read again. While the ledger does not answer, it
// is also how old the list may be for the server to count as ready.
const (
	tokensAge = time.Second
	readyAge  = 5 * time.Second
	// awayAge is how long the list is valid while the ledger does not answer: as long as that of API keys. readTime
	// bounds one reading.
	awayAge  = 15 * time.Minute
	readTime = 3 * time.Second
)

// tokens are the valid tokens of all clients, as the ledger recently had them. A request costs the ledger nothing,
// whatever its token.
type tokens struct {
	source func(context.Context) ([]payment.ClientToken, error)
	list   atomic.Pointer[tokenList]
	first  singleflight.Group
	mu     sync.Mutex // locked while the list is read again
}

type tokenList struct {
	byHash map[string]*payment.ClientToken
	read   time.Time
}

// current returns the list. While another request reads it, and for awayAge while it can't be read, the last list is
// valid: a ledger that is down also books nothing for a revoked token.
func (t *tokens) current(ctx context.Context) (*tokenList, error) {
	have := t.list.Load()
	switch {
	case have == nil:
		return t.wait(ctx)
	case time.Since(have.read) < tokensAge:
		return have, nil
	case !t.mu.TryLock():
		return have.unlessOld(nil)
	}
	defer t.mu.Unlock()
	if newer := t.list.Load(); newer != have {
		return newer, nil
	}
	list, err := t.read(ctx)
	if err != nil {
		return have.unlessOld(err)
	}
	return list, nil
}

// wait reads the first list, once for all waiting callers. Each waits no longer than for one reading.
func (t *tokens) wait(ctx context.Context) (*tokenList, error) {
	select {
	case first := <-t.first.DoChan("", func() (any, error) { return t.read(ctx) }):
		list, _ := first.Val.(*tokenList)
		return list, first.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read reads the list for all callers: it continues when the caller that began it is gone.
func (t *tokens) read(ctx context.Context) (*tokenList, error) {
	now := time.Now() // before it is read: a token that is revoked meanwhile may be in it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	all, err := t.source(ctx)
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

// unlessOld returns the list, or an error if it is too old.
func (l *tokenList) unlessOld(why error) (*tokenList, error) {
	if time.Since(l.read) > awayAge {
		return nil, errors.Join(fmt.Errorf("the list of tokens was read more than %s ago", awayAge), why)
	}
	return l, nil
}

type healthAnswer struct {
	Status string `json:"status" enum:"ok"`
}

func (b *Balance) alive(w http.ResponseWriter, _ *http.Request) error {
	web.WriteJSON(w, http.StatusOK, healthAnswer{"ok"})
	return nil
}

// ready answers GET /readyz: whether the ledger answers. Many requests cost the ledger at most one reading a second.
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
