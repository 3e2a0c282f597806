// Package deliveries shows and controls the sinks, and decides about dead letters, claims and replays.
package deliveries

import "github.com/hongbao-project/hongbao/internal/app"

// Deliveries has the operations of a deployment on deliveries.
type Deliveries struct{ app *app.App }

// Of returns the Deliveries of the deployment that a has opened.
func Of(a *app.App) Deliveries { return Deliveries{a} }
