package access

import (
	"context"
	"errors"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// What a request with an Idempotency-Key is refused for. Tell them apart with errors.Is.
var (
	// ErrKeyRequired says that a request that changes something has no key, or one that can't be: 400.
	ErrKeyRequired = errors.New("send an Idempotency-Key of 1 to 255 printable ASCII characters without spaces")
	// ErrKeyReused says that the key stands for another request: 422, idempotency_key_reused.
	ErrKeyReused = errors.New("the Idempotency-Key was used for another request; a new request needs a new key")
	// ErrUnderWay says that the first request under the key is not answered yet: 409, come back.
	ErrUnderWay = errors.New("the first request under this Idempotency-Key is still under way")
)

// Request names a request that changes something.
type Request struct {
	// Caller is who sends it: the id of his API key. Another caller's keys are others.
	Caller string
	// Key is his Idempotency-Key.
	Key string
	// Hash is the SHA-256 in hex of all that the key stands for: method, path with query, body.
	Hash string
}

// Check refuses a request without a key.
func (r *Request) Check() error {
	if r.Key == "" || len(r.Key) > 255 || strings.ContainsFunc(r.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", ErrKeyRequired)
	}
	return nil
}

// Onces does a request once, however often it comes. The ledger has it: (*ledger.Ledger).Once.
//
// do makes the effect and gives the answer, JSON that is not empty. All that it writes to the ledger with its context
// goes into one transaction, and the answer with it: both are there, or neither. The same request again gets the first
// answer, with again true, for 24 hours. An error of do rolls back and is kept nowhere: the next request under the key
// is tried anew. do may be called more than once, if its transaction loses against another one.
//
// What do writes to Redis is in no transaction, so it must be idempotent by nature. Slow work that is not part of the
// effect, as storing a campaign's codes, is to stand outside, behind it, and to be done after a repeat as well.
//
// Its own errors are ErrKeyRequired, ErrKeyReused, ErrUnderWay, and the ledger's, which have a class. After one of class
// Unknown the same request tells what happened.
type Onces interface {
	Once(ctx context.Context, r Request, do func(ctx context.Context) (answer []byte, err error)) (answer []byte, again bool,
		err error)
}
