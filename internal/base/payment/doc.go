// Package payment defines the types that the ledger shares with the balance API, with the remote balance system and
// with the close of a campaign: a credit, a credit of unknown result, and a refund.
package payment
