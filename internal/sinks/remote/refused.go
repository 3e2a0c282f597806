package remote

import (
	"sync"
	"time"
)

// refusals decides whether a bare refusal concerns one account or all accounts. A bare refusal is a refusing status
// without an error code of the API. At first, a refused grant waits without an attempt. If a credit of another account
// then succeeds, or maxHold is over, the refusal counts as the account's own failure. If a second account is refused
// before any credit succeeds, the remote refuses every account: this is an outage.
type refusals struct {
	mu sync.Mutex
	// through is the number of credits that succeeded.
	through int64
	// first has the first refusal of each refused account.
	first map[string]refusal
	// last is the value of through at the most recent first refusal of any account.
	last int64
}

// refusal is the first refusal of an account: its time, and the value of through at that time.
type refusal struct {
	at      time.Time
	through int64
}

// maxHold is the maximum time that a refused account waits. At the end of a campaign there may be no other account
// whose credit could succeed.
const maxHold = 15 * time.Minute

// maxRefused limits the number of accounts in first. If it is exceeded, all accounts are forgotten and wait again.
const maxRefused = 100_000

// whose says whether a bare refusal concerns one account or all.
type whose int

const (
	whoseUnknown whose = iota // not known yet: the grant waits
	whoseAccount              // only this account
	whoseRemote               // every account
)

// refuse records a refusal of an account, and says whom it concerns. Only the first refusal of an account can show an
// outage. Otherwise the consumer, which delivers the same grants again during an outage, would never get to other
// accounts.
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

// pass records that a credit of an account succeeded, and deletes the account's refusal. So any success that refuse
// counts after a first refusal is from another account.
func (r *refusals) pass(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.through++
	delete(r.first, account)
}

// attribute adds to a result whom a bare refusal concerns. If the remote refuses every account, requests stop for
// BreakerOpen.
func (h *Handler) attribute(of *refusals, account string, r result) result {
	switch {
	case r.outcome == Done:
		of.pass(account)
	case r.bare:
		switch of.refuse(account, h.now()) {
		case whoseUnknown:
			r.waits = true
		case whoseRemote:
			r.outage = true
			h.gate.Silence(h.cfg.BreakerOpen)
		case whoseAccount:
		}
	}
	return r
}
