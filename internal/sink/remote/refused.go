package remote

import (
	"sync"
	"time"
)

// refusals tells whom a bare refusal is about: a status that refuses without a code of the contract. A grant that is
// refused waits without an attempt until a credit of another account went through, or for maxHold: then the refusal is
// its own failure. But if another account is refused before any credit went through, the remote refuses everybody: an
// outage.
type refusals struct {
	mu sync.Mutex
	// through counts the credits that went through.
	through int64
	// first has the accounts that are refused.
	first map[string]refusal
	// last is what through was when an account was refused for the first time.
	last int64
}

// refusal is the first one of an account: when it was, and what through was then.
type refusal struct {
	at      time.Time
	through int64
}

// maxHold is how long an account that is refused waits at most. The last accounts of a campaign have no other one behind
// them that could go through.
const maxHold = 15 * time.Minute

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
func (r *refusals) refuse(account string, now time.Time) whose {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.first[account]
	switch {
	case known && (first.through < r.through || now.Sub(first.at) >= maxHold):
		return whoseAccount
	case known:
		return whoseUnknown
	}
	another := len(r.first) > 0 && r.last == r.through
	if len(r.first) >= maxRefused || r.first == nil {
		r.first = map[string]refusal{}
	}
	r.first[account], r.last = refusal{now, r.through}, r.through
	if another {
		return whoseRemote
	}
	return whoseUnknown
}

// pass notes that a credit of an account went through. So what went through after a first refusal is of another account.
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
		switch of.refuse(account, h.now()) {
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
