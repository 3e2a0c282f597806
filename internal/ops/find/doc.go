// Package find finds grants: by user, by packet, and a user's receipts.
package find

import "github.com/hongbao-project/hongbao/internal/app"

// Find has the operations of a deployment on grants.
type Find struct{ app *app.App }

// Of returns the Find of the deployment that a has opened.
func Of(a *app.App) Find { return Find{a} }
