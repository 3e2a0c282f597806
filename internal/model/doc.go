// Package model has the values that pages, commands and APIs show: campaigns, dead letters, the trail of a grant. Other
// packages fill them from Redis, the ledger and the topic. The package reads and writes nothing itself, and no value has
// a field for a seed, a code, a secret or the hash of a key.
package model

import "errors"

// ErrNotFound says that the requested object does not exist.
var ErrNotFound = errors.New("there is no such thing")

// PageLen is the number of lines on a page of a list.
const PageLen = 50
