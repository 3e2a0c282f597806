package app

import (
	"github.com/hongbao-project/hongbao/internal/console"
)

// Console makes the pages over this process' servers; Redis must be open.
func (a *App) Console(authority console.Authority) (*console.Console, error) {
	return console.New(a.Config.Console, console.Deps{
		Source: &consoleSource{App: a}, Actions: consoleActions{a}, Authority: authority, Log: a.log,
		TLS: a.Config.ServeConfig().ControlTLS != nil,
	})
}
