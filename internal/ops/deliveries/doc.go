// Package deliveries shows and controls the sinks, and decides about dead letters, claims and replays.
package deliveries

import "github.com/hongbao-project/hongbao/internal/app"

// Deliveries has the operations of a deployment on deliveries.
type Deliveries struct{ app *app.App }

// Of returns the operations of the App's deployment.
func Of(a *app.App) Deliveries { return Deliveries{a} }
