package hongbao

import (
	"errors"
	"time"
)

// Credit is what a balance system is asked to do: add an amount to an account, once.
type Credit struct {
	// Key is the idempotency key; a repeat with the same key is the same credit. Reference names the credit for ever.
	// Both are ids, see CheckID.
	Key, Reference string
	// Account is whose balance grows, in Currency: an id, and three capital letters.
	Account, Currency string
	// Amount is 1 to MaxAmount.
	Amount Amount
	// Created is when it was booked, whole milliseconds; the balance system sets it.
	Created time.Time
}

// Credited is the answer to one credit: it was booked, now or before, or Err says why not.
type Credited struct {
	Credit Credit
	// Repeated tells that it was booked before.
	Repeated bool
	Err      error
}

// The contradictions that a balance system refuses; their errors are Conflicts.
var (
	ErrKeyReused       = errors.New("the idempotency key was used for another credit")
	ErrReferenceReused = errors.New("the reference was used for another credit")
)

// AccountBalance is what an account holds in one currency.
type AccountBalance struct {
	Currency string
	Balance  Amount
	// Credits is how many credits make up the balance.
	Credits int64
}

// StatementPage asks for credits of an account, oldest first.
type StatementPage struct {
	Account string
	// After is the last credit of the page before; zero to begin. Only Created and Reference are looked at.
	After Credit
	// Limit bounds the page.
	Limit int
}
