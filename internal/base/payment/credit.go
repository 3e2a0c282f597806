package payment

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Credit is a request to a balance system to move an amount from a client's fund to an account exactly once.
type Credit struct {
	// Client is the sender of the request. Each client has its own keys and references.
	Client string
	// Key is the idempotency key: a request with the same key is a repeat of the same credit. Reference is the client's
	// permanent name of the credit. Both must pass hongbao.CheckID.
	Key, Reference string
	// Account is the id of the account that receives the amount. Currency has three capital letters.
	Account, Currency string
	// Amount is in minor units, from 1 to hongbao.MaxAmount.
	Amount hongbao.Amount
	// Created is when the balance system booked the credit, in whole milliseconds. The balance system sets it.
	Created time.Time
}

// Credited is the result of one credit. Err is nil if the credit is booked, and otherwise the reason why not.
type Credited struct {
	Credit Credit
	// Repeated says that an earlier request had already booked the credit.
	Repeated bool
	Err      error
}

// Reasons why a balance system refuses a credit. The first two contradict an earlier credit; their errors have class
// Conflict. ErrFundExhausted is Transient: nothing was booked, and the credit can succeed once the client's fund is
// filled.
var (
	ErrKeyReused       = errors.New("the idempotency key was used for another credit")
	ErrReferenceReused = errors.New("the reference was used for another credit")
	ErrFundExhausted   = errors.New("the client's fund does not cover it")
)

// AccountBalance is the balance of an account in one currency.
type AccountBalance struct {
	Currency string         `json:"currency" doc:"Currency of the balance, ISO 4217."`
	Balance  hongbao.Amount `json:"balance" doc:"Sum of all credits of the account in this currency, in minor units."`
	Credits  int64          `json:"credits" doc:"Number of credits in the balance."`
}

// StatementLine is a credit in the statement of one account and currency. Lines are numbered 1, 2, 3, ... without gaps,
// in the order in which the credits were booked. Client is the client that chose the Reference.
type StatementLine struct {
	Number int64
	Credit
}

// StatementPage selects a page of a statement.
type StatementPage struct {
	Account, Currency string
	// After is the number of the last line of the previous page; 0 for the first page.
	After int64
	// Limit is the maximum number of lines.
	Limit int
}

// CreditPage selects a page of a client's credits, ordered by reference.
type CreditPage struct {
	Client string
	// After is the last reference of the previous page. Any other text works, too; empty selects the first page.
	After string
	// Limit is the maximum number of credits.
	Limit int
}
