package app

import (
	"github.com/hongbao-project/hongbao/internal/console"
)

// Console makes the pages over this process' servers; Redis must be open. faults are those of a development server, else
// nil.
func (a *App) Console(authority console.Authority, faults console.Faults) (*console.Console, error) {
	return console.New(a.Config.Console, console.Deps{
		Source: &consoleSource{App: a, shapes: shapes{read: readShape}}, Actions: consoleActions{a}, Authority: authority,
		Faults: faults, Log: a.log, Deployment: a.Config.Deployment.ID,
		TLS: a.Config.ServeConfig().ControlTLS != nil,
	})
}
