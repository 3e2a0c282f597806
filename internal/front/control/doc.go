// Package control answers the administration API: HTTP on serve's control listener. It does what the commands of
// hongbao do, by the same methods of internal/app, for callers with an API key.
//
// A request passes one way:
//
//	operation.go  who asks (access.Authority), and may his role do this (access.Caller)
//	change.go     what changes something: its Idempotency-Key, and the journal
//	campaigns.go, letters.go, ...  read the request, call one method of app, answer
//	problem.go    what an error becomes
//
// docs/administration.md is for its callers.
package control
