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
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"go.uber.org/zap"
)

const (
	// fileAge is the interval at which the file is read again.
	fileAge   = time.Second
	minSecret = 32 // minimum length of an HS256 secret in bytes
)

// knobField is the log field with the configuration key of a key set.
func knobField(name string) zap.Field { return zap.String("knob", name) }

// keySet finds the key with which to verify a token.
type keySet interface {
	// find returns errNoKeys if the set can't be read, because then the set might have the key.
	find(ctx context.Context, kid, alg string) (any, error)
}

var errUnknownKey = errors.New("the key set has no such key")

// keys maps key ids to usable keys.
type keys map[string]usableKey

// usableKey is a key and its algorithm. A usableKey whose key is nil verifies no token. If the key is a secret,
// it is a *sharedKey.
type usableKey struct {
	alg string
	key any
}

func (k keys) find(kid, alg string) (any, error) {
	has, ok := k[kid]
	switch {
	case !ok:
		return nil, errUnknownKey
	case has.alg != alg || has.key == nil:
		return nil, fmt.Errorf("the key is for algorithm %q", has.alg)
	}
	return has.key, nil
}

// fileSet is a key set that is read from a file.
type fileSet struct {
	file func() ([]byte, string, error)
	log  *zap.Logger

	known atomic.Pointer[fileKeys]

	mu   sync.Mutex // held while the file is read
	text []byte
	open string // who else could read the file when text was checked
}

// fileKeys are the keys of the file and the time of the last read.
type fileKeys struct {
	keys keys
	read time.Time
}

// sharedKey is a key of HS256. It reuses HMAC states that are already initialized with the key, which saves half of
// the work for a short text.
type sharedKey struct{ hashes sync.Pool }

// keyHash is an HMAC state, with buffers for the text and the sum.
type keyHash struct {
	hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

func newSharedKey(key []byte) *sharedKey {
	return &sharedKey{sync.Pool{New: func() any { return &keyHash{Hash: hmac.New(sha256.New, key)} }}}
}

// signed reports whether mac is the key's signature of the text.
func (s *sharedKey) signed(text string, mac []byte) bool {
	h := s.hashes.Get().(*keyHash) //nolint:forcetypeassert // the pool has only values of this type
	defer s.hashes.Put(h)
	h.Reset()
	h.text = append(h.text[:0], text...)
	_, _ = h.Write(h.text)
	return hmac.Equal(h.Sum(h.sum[:0]), mac)
}

// newFileKeys returns the key set in a file. The set rereads the file when it changes.
func newFileKeys(file func() ([]byte, string, error), log *zap.Logger) (*fileSet, error) {
	k := &fileSet{file: file, log: log}
	return k, k.load()
}

// find rereads the file if the last read is at least fileAge old. If the file is invalid, find uses the previous keys.
func (k *fileSet) find(_ context.Context, kid, alg string) (any, error) {
	known := k.known.Load()
	if time.Since(known.read) >= fileAge {
		known = k.again()
	}
	return known.keys.find(kid, alg)
}

// again rereads the file, unless another caller has just done so.
func (k *fileSet) again() *fileKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.known.Load(); time.Since(known.read) < fileAge {
		return known
	}
	if err := k.load(); err != nil {
		k.log.Error("the key set has changed and can't be used; the previous keys stay valid until the file is fixed",
			zap.String("code", "keys_unread"), zap.Error(err))
	}
	return k.known.Load()
}

// usable returns the key that verifies signatures. It returns an error unless the key's type fits its
// algorithm.
func usable(jwk *jwkset.JWK) (any, error) {
	key := jwk.Key()
	if private, ok := key.(interface{ Public() crypto.PublicKey }); ok {
		key = private.Public()
	}
	m, good := jwk.Marshal(), false
	switch alg := m.ALG; pub := key.(type) {
	case []byte:
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
		return nil, fmt.Errorf("want a kid, an alg of %v that fits the key, RSA of 2048 bits or more, and no use except sig",
			algorithms)
	}
	return key, nil
}

// load reads the file. Every key must be usable. A valid file with an empty key list removes all keys. An incomplete
// or invalid file removes no keys.
func (k *fileSet) load() error {
	now, before := &fileKeys{read: time.Now()}, k.known.Load()
	if before != nil {
		now.keys = before.keys
	}
	k.known.Store(now)
	text, open, err := k.file()
	if err != nil || k.text != nil && bytes.Equal(text, k.text) && open == k.open {
		return err
	}
	k.text, k.open = text, open // stored first, so that an invalid file is reported once
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	if len(set.Keys) == 0 && (set.Keys == nil || before == nil) {
		return errors.New(`it has no keys: want {"keys": [...]}`)
	}
	keys, err := k.usableOnes(&set)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		k.log.Error("the key set has no keys any more: all tokens are refused",
			zap.String("code", "keys_unread"))
	}
	k.known.Store(&fileKeys{keys, now.read})
	return nil
}

// usableOnes returns the keys of a set by their ids. It returns an error if any key can't be used.
func (k *fileSet) usableOnes(set *jwkset.JWKSMarshal) (keys, error) {
	list, err := set.JWKSlice()
	if err != nil {
		return nil, fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	found := make(keys, len(list))
	for i := range list {
		m := list[i].Marshal()
		key, err := usable(&list[i])
		if err != nil {
			return nil, fmt.Errorf("key %d, %.80q: %w", i+1, m.KID, err)
		}
		if _, twice := found[m.KID]; twice {
			return nil, fmt.Errorf("key %d, %.80q: the kid occurs twice", i+1, m.KID)
		}
		own, isSecret := key.([]byte)
		switch {
		case isSecret && k.open != "":
			return nil, fmt.Errorf("key %d is a secret, but %s", i+1, k.open)
		case isSecret:
			key = newSharedKey(own)
		}
		found[m.KID] = usableKey{string(m.ALG), key}
	}
	return found, nil
}
