package remote

import (
	"sync"
	"time"
)

// refusals finds out whether a bare refusal concerns one account or all. A bare refusal is a status that refuses
// without a code of the contract. A refused grant waits without an attempt until a credit of another account succeeded,
// or for maxHold: then the refusal is the account's own failure. But if another account is refused before any credit
// succeeded, the remote refuses every account: an outage.
type refusals struct {
	mu sync.Mutex
	// through counts the credits that succeeded.
	through int64
	// first has the accounts that are refused.
	first map[string]refusal
	// last is the value of through when an account was most recently refused for the first time.
	last int64
}

// refusal is the first one of an account: its time, and the value of through at that time.
type refusal struct {
	at      time.Time
	through int64
}

// maxHold is how long a refused account waits at most. After the last accounts of a campaign there may be no other
// account that could succeed.
const maxHold = 15 * time.Minute

// maxRefused bounds the accounts that are remembered. Forgotten accounts wait once more.
const maxRefused = 100_000

// whose says what a bare refusal concerns.
type whose int

const (
	whoseUnknown whose = iota // the grant waits
	whoseAccount              // this account alone
	whoseRemote               // every account
)

// refuse notes that an account is refused. A repeated refusal of an account is no new information. Otherwise the
// consumer, which brings the same grants again during an outage, would never reach an account whose answer is new
// information.
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

// pass notes that a credit of an account succeeded, and deletes the account's refusal. So credits that succeed after a
// first refusal are of other accounts.
func (r *refusals) pass(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.through++
	delete(r.first, account)
}

// attribute completes the result about an account with whom a bare refusal concerns. A remote that refuses every
// account gets no requests for a while, like one that fails.
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
