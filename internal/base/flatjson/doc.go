// Package flatjson reads JSON objects that carry money, and refuses what encoding/json would let pass: a name that
// comes twice, a name in other letters' case, a second document, an object inside an object. What it refuses it does
// not repeat.
//
// An object is flat but for one list of flat objects that the caller may allow and bounds, so no text makes it go
// deeper than two levels. Numbers stay text until Integer reads one, as plain digits: no fraction, no exponent, nothing
// above the caller's bound; so no amount is ever rounded.
//
// It knows no names: which fields there must be, and which there may be, is for its two users to check, bank for
// requests and internal/sink/remote for answers. It keeps nothing, and may be used by any number of goroutines at once.
package flatjson
