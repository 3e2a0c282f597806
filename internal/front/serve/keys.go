package serve

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/keyset"
)

// fileAge is the interval at which the file is read again.
const fileAge = time.Second

// knobField is the log field with the configuration key of a key set.
func knobField(name string) zap.Field { return zap.String("knob", name) }

// keySet finds the key with which to verify a token.
type keySet interface {
	// find returns errNoKeys if the set can't be read, because then the set might have the key.
	find(ctx context.Context, kid, alg string) (any, error)
}

var errUnknownKey = errors.New("the key set has no such key")

// keys maps ids to keys. A secret is a *sharedKey.
type keys map[string]keyset.Key

func keysOf(s *keyset.Set) keys {
	for kid, k := range s.Keys {
		if secret, ok := k.Key.([]byte); ok {
			s.Keys[kid] = keyset.Key{Alg: k.Alg, Key: newSharedKey(secret)}
		}
	}
	return s.Keys
}

func (k keys) find(kid, alg string) (any, error) {
	has, ok := k[kid]
	switch {
	case !ok:
		return nil, errUnknownKey
	case has.Alg != alg || has.Key == nil:
		return nil, fmt.Errorf("the key is for algorithm %q", has.Alg)
	}
	return has.Key, nil
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

// load reads the file. A key that can't be used is skipped, and the log names it. A valid file with an empty key list
// removes all keys. An incomplete or invalid file, or one without a usable key, removes no keys.
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
	var noSecrets error
	if open != "" {
		noSecrets = fmt.Errorf("it is a secret, but %s", open)
	}
	set, err := keyset.Read(text, noSecrets)
	switch skipped := errors.Join(set.Skipped...); {
	case err != nil:
		return err
	case set.Usable == 0 && (skipped != nil || before == nil):
		return errors.Join(errors.New("it has no keys that can be used"), skipped)
	case set.Usable == 0:
		k.log.Error("the key set has no keys any more: all tokens are refused", zap.String("code", "keys_unread"))
	case skipped != nil:
		k.log.Error("the key set has keys that can't be used; the others are valid", zap.String("code", "keys_unread"),
			zap.Error(skipped))
	}
	k.known.Store(&fileKeys{keysOf(&set), now.read})
	return nil
}
