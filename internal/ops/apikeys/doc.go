// Package apikeys creates, lists, rotates and revokes API keys.
package apikeys

import "github.com/hongbao-project/hongbao/internal/app"

// Keys has the operations of a deployment on API keys.
type Keys struct{ app *app.App }

// Of returns the Keys of the deployment that a has opened.
func Of(a *app.App) Keys { return Keys{a} }
