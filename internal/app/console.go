package app

// PageSource gives what the console's pages show; Redis must be open.
func (a *App) PageSource() *PageSource {
	return &PageSource{App: a, shapes: shapes{read: readShape}, listed: map[string]found{}}
}

// PageActions gives what the buttons of the console's pages do; Redis must be open.
func (a *App) PageActions() PageActions { return PageActions{a} }
