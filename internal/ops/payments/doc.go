// Package payments has the grants that contradict the ledger, those that it never paid, and the funds of clients.
package payments

import "github.com/hongbao-project/hongbao/internal/app"

// Payments has the operations of a deployment on payments.
type Payments struct{ app *app.App }

// Of returns the operations of the App's deployment.
func Of(a *app.App) Payments { return Payments{a} }
