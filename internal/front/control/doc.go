// Package control answers the administration API: HTTP on serve's control listener. It does the same as the commands
// of hongbao, by the same methods of internal/app, for callers with an API key.
//
// A request passes these files in order:
//
//	operation.go  identifies the caller (access.Authority) and checks their role (access.Caller)
//	change.go     handles a change: its Idempotency-Key, and the journal
//	campaigns.go, letters.go, ...  read the request, call one method of app, answer
//	problem.go    turns an error into a problem
//
// docs/administration.md is the page for callers.
package control
