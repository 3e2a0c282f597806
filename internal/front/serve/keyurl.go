package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/keyset"
)

// Times and limits of a key set behind a URL.
const (
	// urlAge is the interval of fetches; before the first successful fetch it is firstEvery.
	urlAge     = 5 * time.Minute
	firstEvery = time.Second
	urlTimeout = 10 * time.Second
	// A token with an unknown key id also triggers a fetch, at most once in unknownEvery. The caller waits for
	// that fetch for at most unknownWait.
	unknownEvery = 10 * time.Second
	unknownWait  = 3 * time.Second
	maxKeySet    = 1 << 20
)

// errNoKeys means that the key set can't be read, so that nobody knows whether a token is valid.
var errNoKeys = errors.New("the key set of serve.keys could not be read")

// urlSet is a key set that is fetched from a URL. The goroutine of run makes every fetch, and all callers share
// the result.
type urlSet struct {
	url    string
	client *http.Client
	log    *zap.Logger

	skipped string // the keys that the log named last; only run uses it

	last atomic.Pointer[fetch]
	ask  chan struct{} // receives a value when a caller requests a fetch
}

// fetch is the state after a fetch of the key set.
type fetch struct {
	keys  keys          // the keys of the last successful fetch; nil before it
	err   error         // of this fetch
	asked time.Time     // when a caller last triggered a fetch
	next  chan struct{} // closed when the next fetch has ended
}

func newURLSet(url string, transport http.RoundTripper, log *zap.Logger) *urlSet {
	k := &urlSet{url: url, log: log.With(zap.String("url", url)), ask: make(chan struct{}, 1), client: &http.Client{
		Timeout: urlTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	k.last.Store(&fetch{next: make(chan struct{})})
	return k
}

// run fetches the key set until ctx ends.
func (k *urlSet) run(ctx context.Context) {
	var due time.Time
	byCaller := false
	for {
		k.fetch(ctx, byCaller)
		if !byCaller {
			due = time.Now().Add(urlAge)
		}
		if k.last.Load().keys == nil {
			due = time.Now().Add(firstEvery)
		}
		var ok bool
		if byCaller, ok = k.wait(ctx, due); !ok {
			return
		}
	}
}

// wait returns when a fetch is due or a caller requests one. ok is false if ctx has ended.
func (k *urlSet) wait(ctx context.Context, due time.Time) (byCaller, ok bool) {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-timer.C:
			return false, true
		case <-k.ask:
			if k.last.Load().old() { // else another caller's fetch was recent enough
				return true, true
			}
		}
	}
}

// old reports whether an unknown key id may trigger another fetch.
func (f *fetch) old() bool { return f.keys != nil && time.Since(f.asked) >= unknownEvery }

// fetch fetches the key set. If that fails, the previous keys stay valid. It raises an alarm only if the fetch was
// due, because a caller's token must not raise alarms.
func (k *urlSet) fetch(ctx context.Context, byCaller bool) {
	found, err := k.read(ctx)
	before := k.last.Load()
	if err != nil {
		found = before.keys
		if !byCaller && ctx.Err() == nil {
			k.log.Error("the key set can't be read; keys of an earlier fetch stay valid, if there are any",
				zap.String("code", "keys_unread"), zap.Error(err))
		}
	}
	after := &fetch{keys: found, err: err, asked: before.asked, next: make(chan struct{})}
	if byCaller {
		after.asked = time.Now()
	}
	k.last.Store(after)
	close(before.next)
}

func (k *urlSet) read(ctx context.Context) (keys, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	res, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d, want 200", k.url, res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxKeySet))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", k.url, err)
	}
	return k.publicKeys(text)
}

// publicKeys returns the keys of a published key set. Providers also publish keys that this server can't use, so the log
// names these only at level info, whenever they change. A set without a usable key is an error, because the answer may
// not be a key set at all.
func (k *urlSet) publicKeys(text []byte) (keys, error) {
	set, err := keyset.Read(text, keyset.ErrSecret)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", k.url, err)
	}
	skipped := errors.Join(set.Skipped...)
	if set.Usable == 0 {
		return nil, errors.Join(errors.New(`the answer has no keys that can be used here: want {"keys": [...]}; check that `+
			"serve.keys is the address of a key set"), skipped)
	}
	if now := fmt.Sprint(skipped); skipped != nil && now != k.skipped {
		k.skipped = now
		k.log.Info("the key set has keys that can't be used; the others are valid", zap.Error(skipped))
	}
	return keysOf(&set), nil
}

// find returns the key for a token with a key id and an algorithm. If the key is unknown, it waits for the next fetch,
// even if the caller hangs up.
func (k *urlSet) find(_ context.Context, kid, alg string) (any, error) {
	last := k.last.Load()
	first := last.keys == nil && last.err == nil // the first fetch is still running
	if key, err := last.find(kid, alg); !errors.Is(err, errUnknownKey) || !first && !last.old() {
		return key, err
	}
	if !first {
		select {
		case k.ask <- struct{}{}:
		default: // a fetch is already requested
		}
	}
	timer := time.NewTimer(unknownWait)
	defer timer.Stop()
	select {
	case <-last.next:
	case <-timer.C:
		return nil, fmt.Errorf("%w within %v", errNoKeys, unknownWait)
	}
	return k.last.Load().find(kid, alg)
}

// find returns errNoKeys for an unknown key if the last fetch failed, because the newest set might have the
// key.
func (f *fetch) find(kid, alg string) (any, error) {
	key, err := f.keys.find(kid, alg)
	if f.err != nil && errors.Is(err, errUnknownKey) {
		err = fmt.Errorf("%w: %w: %w", errNoKeys, err, f.err)
	}
	return key, err
}

// ready reports whether a key set was fetched successfully.
func (k *urlSet) ready() bool { return k.last.Load().keys != nil }
