package remote

import (
	"sync"
)

// refusals tells whom a bare refusal is about: a status that refuses without a code of the contract. A grant that is
// refused waits without an attempt until a credit of another account went through: then the refusal is its own
// failure. But if another account is refused before any credit went through, the remote refuses everybody: an outage.
type refusals struct {
	mu sync.Mutex
	// through counts the credits that went through.
	through int64
	// first has the accounts that are refused, and what through was at their first refusal.
	first map[string]int64
	// last is what through was when an account was refused for the first time.
	last int64
}

// maxRefused bounds the accounts that are remembered. Those that are forgotten wait once more.
const maxRefused = 100_000

// whose says what a bare refusal means.
type whose int

const (
	whoseUnknown whose = iota // the grant waits
	whoseAccount              // the account's alone
	whoseRemote               // everybody's
)

// refuse notes that an account is refused. An account that was refused before tells nothing new: else the consumer,
// which brings the same grants again during an outage, would never get on to an account that tells more.
func (r *refusals) refuse(account string) whose {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.first[account]
	switch {
	case known && first < r.through:
		return whoseAccount
	case known:
		return whoseUnknown
	}
	another := len(r.first) > 0 && r.last == r.through
	if len(r.first) >= maxRefused || r.first == nil {
		r.first = map[string]int64{}
	}
	r.first[account], r.last = r.through, r.through
	if another {
		return whoseRemote
	}
	return whoseUnknown
}

// pass notes that a credit of an account went through. So first < through is about another account.
func (r *refusals) pass(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.through++
	delete(r.first, account)
}

// attribute completes the result about an account: whom a bare refusal is about. A remote that refuses everybody is
// left alone for a while, as one that fails is.
func (h *Handler) attribute(of *refusals, account string, r result) result {
	switch {
	case r.verdict == Done:
		of.pass(account)
	case r.bare:
		switch of.refuse(account) {
		case whoseUnknown:
			r.waits = true
		case whoseRemote:
			r.outage = true
			h.silence(h.cfg.BreakerOpen)
		case whoseAccount:
		}
	}
	return r
}
