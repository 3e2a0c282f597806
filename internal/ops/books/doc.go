// Package books audits, seals, exports and archives what the ledger has.
package books

import "github.com/hongbao-project/hongbao/internal/app"

// Books has the operations of a deployment on books.
type Books struct{ app *app.App }

// Of returns the Books of the deployment that a has opened.
func Of(a *app.App) Books { return Books{a} }
