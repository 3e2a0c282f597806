// Package flatjson reads JSON objects that contain money, and refuses what encoding/json would accept: a duplicate
// name, a name in another case, a second document, an object inside an object. Its errors do not quote the refused
// text.
//
// An object is flat, except for one list of flat objects, which the caller may allow and bounds. So no text is read
// deeper than two levels. Numbers stay text until Integer reads one, as plain digits: no fraction, no exponent, nothing
// above the caller's bound; so no amount is ever rounded.
//
// It knows no names. Its two users check which fields are required and allowed: bank for requests and
// internal/sink/remote for responses. It keeps nothing, and is safe for concurrent use.
package flatjson
