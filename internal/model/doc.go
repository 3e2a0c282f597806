// Package model has the types that pages, commands and APIs show: campaigns, the state of their sinks, and the trail of
// a grant. Other packages fill them from Redis, the ledger and the topic.
package model

import "errors"

// ErrNotFound says that the requested object does not exist.
var ErrNotFound = errors.New("there is no such thing")

// PageLen is the number of lines on a page of a list.
const PageLen = 50
