// Package pages reads the data of the console's pages, and has the actions of their buttons.
package pages

import (
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/model"
)

// NewSource returns the source of the console's pages; Redis must be open.
func NewSource(a *app.App) *Source {
	return &Source{App: a, shapes: shapes{read: readShape}, listed: map[string]campaignPage{},
		history: history{of: map[string][]model.Sample{}}}
}

// NewActions returns the actions of the console's buttons; Redis must be open.
func NewActions(a *app.App) Actions { return Actions{a} }
