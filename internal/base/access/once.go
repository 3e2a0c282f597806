package access

import (
	"errors"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Reasons to refuse a request with an Idempotency-Key. Distinguish them with errors.Is.
var (
	// ErrKeyRequired says that a modifying request has no valid Idempotency-Key. The response is 400.
	ErrKeyRequired = errors.New("send an Idempotency-Key of 1 to 255 printable ASCII characters without spaces")
	// ErrKeyReused says that the key was used for a different request. The response is 422, idempotency_key_reused.
	ErrKeyReused = errors.New("the Idempotency-Key was used for another request; a new request needs a new key")
	// ErrUnderWay says that the first request with this key has not been answered yet. The response is 409: try again
	// later.
	ErrUnderWay = errors.New("the first request under this Idempotency-Key is still under way")
)

// Request identifies a modifying request.
type Request struct {
	// Caller is the id of the sender's API key. Each caller has its own Idempotency-Keys.
	Caller string
	// Key is the caller's Idempotency-Key.
	Key string
	// Hash is the SHA-256, in hex, of the method, the path with its query, and the body. A repeat must have the same
	// hash.
	Hash string
}

// Check refuses a request without a valid Idempotency-Key.
func (r *Request) Check() error {
	if r.Key == "" || len(r.Key) > 255 || strings.ContainsFunc(r.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", ErrKeyRequired)
	}
	return nil
}
