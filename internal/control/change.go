package control

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

func (c *call) change(http.ResponseWriter, *operation) error { return nil }
func idempotencyKey() *huma.Param                            { return nil }
