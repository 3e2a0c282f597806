// Package flatjson parses JSON objects that contain amounts of money. It is stricter than encoding/json: it refuses a
// duplicate name, a second document, and an object inside an object, and matches names with their case. Its errors do
// not quote the refused text.
//
// An object is flat, except for one list of flat objects. The caller must allow this list and limits its length. So the
// nesting has at most two levels. Numbers stay text until Integer converts one. Integer accepts only plain digits up to
// the caller's limit, without a fraction or an exponent, so no amount is ever rounded.
//
// The callers check which fields are required and allowed: internal/front/bank for requests, and internal/sinks/remote
// for responses. The package has no state and is safe for concurrent use.
package flatjson
