// Package control serves the administration API on the control listener of `hongbao serve`. It offers the operations
// of the hongbao commands to callers with an API key, and calls the same methods of internal/app.
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
