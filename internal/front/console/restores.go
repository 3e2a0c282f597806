package console

import (
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// restores shows the restores of data that Redis had lost.
func (c *Console) restores(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	list, err := c.source.Restored(r.Context())
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "restores", page{Title: model.Say("Restores"), Caller: who, View: list})
}
