// Package payment has the types that the ledger shares with the balance API, the remote balance system and the close: a
// credit, a credit that may have been asked for, a refund.
package payment
