package serve

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// Bounds of key sets.
const (
	// fileAge is how often the file is read.
	fileAge = time.Second
	// urlAge is how often the URL is asked. An unknown key id asks it too: at most once a unknownEvery, and its request
	// waits for unknownWait at most.
	urlAge       = 5 * time.Minute
	unknownEvery = 10 * time.Second
	unknownWait  = 3 * time.Second
	urlTimeout   = 10 * time.Second
	maxKeySet    = 1 << 20
	minSecret    = 32 // bytes of a secret of HS256
)

// errNoKeys says that no key set was read yet.
var errNoKeys = errors.New("no key set was read yet")

// knobField names the knob of a key set in its log lines.
func knobField(name string) zap.Field { return zap.String("knob", name) }

// keySet finds the key that a token was signed with.
type keySet struct {
	storage jwkset.Storage                 // nil for a file
	file    func() ([]byte, string, error) // nil for a URL: then no key may be a secret
	secrets bool
	log     *zap.Logger

	known atomic.Pointer[fileKeys]

	mu   sync.Mutex // of who reads the file
	text []byte
	open string // what the checks of text went by
}

// fileKeys are the usable keys of the file, and when it was read last.
type fileKeys struct {
	keys map[string]fileKey
	read time.Time
}

// fileKey is a usable key of the file, and its algorithm. A secret is a *sharedKey.
type fileKey struct {
	alg string
	key any
}

// sharedKey is a key of HS256. It keeps hashes that have taken it in: that is half of the work for a short text.
type sharedKey struct{ hashes sync.Pool }

// keyHash is one of them, with room for what goes in and what comes out.
type keyHash struct {
	hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

func newSharedKey(key []byte) *sharedKey {
	return &sharedKey{sync.Pool{New: func() any { return &keyHash{Hash: hmac.New(sha256.New, key)} }}}
}

// signed tells whether mac is the signature of the text.
func (s *sharedKey) signed(text string, mac []byte) bool {
	h := s.hashes.Get().(*keyHash) //nolint:forcetypeassert // the pool holds nothing else
	defer s.hashes.Put(h)
	h.Reset()
	h.text = append(h.text[:0], text...)
	_, _ = h.Write(h.text)
	return hmac.Equal(h.Sum(h.sum[:0]), mac)
}

// newFileKeys reads the set from a file, and reads it again when it has changed. secrets refuses all but secrets.
func newFileKeys(file func() ([]byte, string, error), secrets bool, log *zap.Logger) (*keySet, error) {
	k := &keySet{file: file, secrets: secrets, log: log}
	return k, k.load()
}

// newURLKeys asks the URL for the set until ctx ends. The set may be out of reach at first.
func newURLKeys(ctx context.Context, url string, log *zap.Logger) (*keySet, error) {
	from, err := jwkset.NewStorageFromHTTP(url, jwkset.HTTPClientStorageOptions{
		Client: &http.Client{
			Timeout: urlTimeout, Transport: shortBodies{http.DefaultTransport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Ctx: ctx, HTTPTimeout: urlTimeout, RefreshInterval: urlAge, NoErrorReturnFirstHTTPReq: true,
		Storage: fullSets{jwkset.NewMemoryStorage()},
		RefreshErrorHandler: func(_ context.Context, err error) {
			if errors.Is(err, context.Canceled) { // the server ends
				return
			}
			log.Error("the key set can't be read; tokens are checked with the keys that were read before",
				zap.String("url", url), zap.String("code", "keys_unread"), zap.Error(err))
		},
	})
	if err != nil {
		return nil, err
	}
	storage, err := jwkset.NewHTTPClient(jwkset.HTTPClientOptions{
		HTTPURLs: map[string]jwkset.Storage{url: from}, RateLimitWaitMax: unknownWait,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownEvery), 1),
	})
	return &keySet{storage: storage, log: log}, err
}

// fullSets refuses to give up its keys for none: an answer that is JSON need not be a key set.
type fullSets struct{ jwkset.Storage }

// KeyReplaceAll implements jwkset.Storage.
func (s fullSets) KeyReplaceAll(ctx context.Context, keys []jwkset.JWK) error {
	if len(keys) == 0 {
		return errors.New(`the answer has no keys that can be used here: want {"keys": [...]}; see that serve.keys is the ` +
			"address of a key set")
	}
	return s.Storage.KeyReplaceAll(ctx, keys)
}

// shortBodies cuts off an answer that is no key set.
type shortBodies struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s shortBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxKeySet), res.Body}
	return res, nil
}

// find gives the key for a token that names a key and an algorithm. It takes unknownWait at most, and a caller who
// hangs up does not end it: an unknown kid has the URL asked once for all callers.
func (k *keySet) find(ctx context.Context, kid, alg string) (any, error) {
	if k.file != nil {
		return k.findInFile(kid, alg)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unknownWait)
	defer cancel()
	jwk, err := k.storage.KeyRead(ctx, kid)
	if err != nil {
		if all, errAll := k.storage.KeyReadAll(ctx); errAll == nil && len(all) == 0 {
			err = errNoKeys
		}
		return nil, err
	}
	if has := string(jwk.Marshal().ALG); has != alg {
		return nil, fmt.Errorf("the key is for algorithm %q", has)
	}
	return k.usable(&jwk)
}

// findInFile reads the file again if nobody has for a moment. A file that can't be used leaves the keys as they are.
func (k *keySet) findInFile(kid, alg string) (any, error) {
	known := k.known.Load()
	if time.Since(known.read) >= fileAge {
		known = k.again()
	}
	has, ok := known.keys[kid]
	switch {
	case !ok:
		return nil, errors.New("the file has no such key")
	case has.alg != alg:
		return nil, fmt.Errorf("the key is for algorithm %q", has.alg)
	}
	return has.key, nil
}

// again reads the file, unless somebody else has meanwhile.
func (k *keySet) again() *fileKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.known.Load(); time.Since(known.read) < fileAge {
		return known
	}
	if err := k.load(); err != nil {
		k.log.Error("the key set has changed and can't be used; the keys before it go on until the file is right",
			zap.String("code", "keys_unread"), zap.Error(err))
	}
	return k.known.Load()
}

// usable gives what a signature is verified with; the type of a key must be that of its algorithm.
func (k *keySet) usable(jwk *jwkset.JWK) (any, error) {
	key := jwk.Key()
	if private, ok := key.(interface{ Public() crypto.PublicKey }); ok {
		key = private.Public()
	}
	m, good := jwk.Marshal(), false
	switch alg := m.ALG; pub := key.(type) {
	case []byte:
		if k.file == nil {
			return nil, errors.New("a secret does not come from a URL: put it into a file")
		}
		if len(pub) < minSecret {
			return nil, fmt.Errorf("the secret has %d bytes: want at least %d", len(pub), minSecret)
		}
		good = alg == jwkset.AlgHS256
	case *rsa.PublicKey:
		good = alg == jwkset.AlgRS256 && pub.Size() >= 256
	case *ecdsa.PublicKey:
		good = alg == jwkset.AlgES256 && pub.Curve == elliptic.P256()
	case ed25519.PublicKey:
		good = alg == jwkset.AlgEdDSA
	}
	if !good || m.USE == jwkset.UseEnc || m.KID == "" {
		return nil, fmt.Errorf("want a kid, an alg of %v that fits to the key, RSA of 2048 bits or more, and no use but sig",
			algorithms)
	}
	return key, nil
}

// load reads the file. Every key must be usable. A file that has no keys any more ends those before it; one that was
// written in part, or by mistake, does not.
func (k *keySet) load() error {
	now, before := &fileKeys{read: time.Now()}, k.known.Load()
	if before != nil {
		now.keys = before.keys
	}
	k.known.Store(now)
	text, open, err := k.file()
	if err != nil || k.text != nil && bytes.Equal(text, k.text) && open == k.open {
		return err
	}
	k.text, k.open = text, open // what can't be used is told once; a chmod may mend it
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) == 0 && (set.Keys == nil || before == nil) {
		return errors.New(`it has no keys: want {"keys": [...]}`)
	}
	keys, err := k.usableOnes(&set)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		k.log.Error("the key set has no keys any more: everybody who comes with one of them is refused",
			zap.String("code", "keys_unread"))
	}
	k.known.Store(&fileKeys{keys, now.read})
	return nil
}

// usableOnes gives the keys of a set by their ids, if all can be used.
func (k *keySet) usableOnes(set *jwkset.JWKSMarshal) (map[string]fileKey, error) {
	list, err := set.JWKSlice()
	if err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	keys := make(map[string]fileKey, len(list))
	for i := range list {
		m := list[i].Marshal()
		key, err := k.usable(&list[i])
		if err != nil {
			return nil, fmt.Errorf("key %d, %.80q: %w", i+1, m.KID, err)
		}
		if _, twice := keys[m.KID]; twice {
			return nil, fmt.Errorf("key %d, %.80q: the kid comes twice", i+1, m.KID)
		}
		own, isSecret := key.([]byte)
		switch {
		case isSecret && k.open != "":
			return nil, fmt.Errorf("key %d is a secret, but %s", i+1, k.open)
		case !isSecret && k.secrets:
			return nil, fmt.Errorf("key %d is no secret: want secrets, of kty oct and alg HS256", i+1)
		case isSecret:
			key = newSharedKey(own)
		}
		keys[m.KID] = fileKey{string(m.ALG), key}
	}
	return keys, nil
}
