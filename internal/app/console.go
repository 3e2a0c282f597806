package app

// PageSource returns the source of the console's pages; Redis must be open.
func (a *App) PageSource() *PageSource {
	return &PageSource{App: a, shapes: shapes{read: readShape}, listed: map[string]campaignPage{}}
}

// PageActions returns the actions of the console's buttons; Redis must be open.
func (a *App) PageActions() PageActions { return PageActions{a} }
