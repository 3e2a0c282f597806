// Package losses shows what Redis has lost, opens shards again, and decides about withheld packets.
package losses

import "github.com/hongbao-project/hongbao/internal/app"

// Losses has the operations of a deployment on losses.
type Losses struct{ app *app.App }

// Of returns the Losses of the deployment that a has opened.
func Of(a *app.App) Losses { return Losses{a} }
