// Package payments shows grants that contradict the ledger or were never paid, decides about them, and funds clients.
package payments

import "github.com/hongbao-project/hongbao/internal/app"

// Payments has the operations of a deployment on payments.
type Payments struct{ app *app.App }

// Of returns the Payments of the deployment that a has opened.
func Of(a *app.App) Payments { return Payments{a} }
