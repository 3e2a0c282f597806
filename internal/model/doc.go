// Package model has the nouns that surfaces show: a campaign, a sink, the trail of a grant. The operations fill them from
// Redis, the ledger and the topic; pages, commands and APIs show them.
package model

import "errors"

// ErrNotFound reports that the thing in a question does not exist.
var ErrNotFound = errors.New("there is no such thing")

// PageLen is how many lines a page of a list has.
const PageLen = 50
