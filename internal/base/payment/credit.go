package payment

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Credit is a request to a balance system: move an amount from a client's fund to an account, once.
type Credit struct {
	// Client is the sender of the request. Each client has its own keys and references.
	Client string
	// Key is the idempotency key; a repeat with the same key is the same credit. Reference names the credit
	// permanently. Both are ids, see hongbao.CheckID.
	Key, Reference string
	// Account is the account whose balance grows, in Currency: an id, and three capital letters.
	Account, Currency string
	// Amount is 1 to hongbao.MaxAmount.
	Amount hongbao.Amount
	// Created is the time of the booking in whole milliseconds; the balance system sets it.
	Created time.Time
}

// Credited is the result of one credit: it was booked, now or before, or Err says why not.
type Credited struct {
	Credit Credit
	// Repeated says that it was booked before.
	Repeated bool
	Err      error
}

// Reasons why a balance system refuses a credit. The first two are contradictions; their errors are Conflicts. The
// third is Transient: nothing was booked, and the same credit can be booked once the client's fund is filled.
var (
	ErrKeyReused       = errors.New("the idempotency key was used for another credit")
	ErrReferenceReused = errors.New("the reference was used for another credit")
	ErrFundExhausted   = errors.New("the client's fund does not cover it")
)

// AccountBalance is the balance of an account in one currency.
type AccountBalance struct {
	Currency string         `json:"currency" doc:"ISO 4217."`
	Balance  hongbao.Amount `json:"balance" doc:"All credits together, in minor units."`
	Credits  int64          `json:"credits" doc:"How many credits make up the balance."`
}

// StatementLine is a credit in the statement of its account and currency. Lines are numbered 1, 2, 3, ... in the order
// in which the credits were booked, without a gap. Client is the owner of the Reference.
type StatementLine struct {
	Number int64
	Credit
}

// StatementPage asks for lines of a statement.
type StatementPage struct {
	Account, Currency string
	// After is the number of the last line that was read; 0 to begin.
	After int64
	// Limit bounds the page.
	Limit int
}

// CreditPage asks for credits of a client, in the order of their references.
type CreditPage struct {
	Client string
	// After is the last reference that was read, or any text after which to begin; empty to begin.
	After string
	// Limit bounds the page.
	Limit int
}
