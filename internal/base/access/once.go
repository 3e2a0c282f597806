package access

import (
	"errors"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Reasons to refuse a request with an Idempotency-Key. Distinguish them with errors.Is.
var (
	// ErrKeyRequired says that a request that changes something has no key, or an invalid one: 400.
	ErrKeyRequired = errors.New("send an Idempotency-Key of 1 to 255 printable ASCII characters without spaces")
	// ErrKeyReused says that the key belongs to another request: 422, idempotency_key_reused.
	ErrKeyReused = errors.New("the Idempotency-Key was used for another request; a new request needs a new key")
	// ErrUnderWay says that the first request under the key is not answered yet: 409, try again later.
	ErrUnderWay = errors.New("the first request under this Idempotency-Key is still under way")
)

// Request identifies a request that changes something.
type Request struct {
	// Caller is the sender: the id of their API key. Keys of different callers are independent.
	Caller string
	// Key is the caller's Idempotency-Key.
	Key string
	// Hash is the SHA-256 in hex of everything that the key covers: method, path with query, body.
	Hash string
}

// Check refuses a request without a key.
func (r *Request) Check() error {
	if r.Key == "" || len(r.Key) > 255 || strings.ContainsFunc(r.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", ErrKeyRequired)
	}
	return nil
}
