// Package campaigns creates, loads, tops up, pauses and ends campaigns, and shows them.
package campaigns

import "github.com/hongbao-project/hongbao/internal/app"

// Campaigns has the operations of a deployment on campaigns.
type Campaigns struct{ app *app.App }

// Of returns the Campaigns of the deployment that a has opened.
func Of(a *app.App) Campaigns { return Campaigns{a} }
