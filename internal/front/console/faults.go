package console

import (
	"context"
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

const faultsPath = "/faults"

// faultRoutes adds the page of faults, which only a development server has. A caller who may pause a sink may also
// cause faults.
func (c *Console) faultRoutes(mux *http.ServeMux) {
	mux.Handle("GET "+faultsPath, c.allow(access.ReadSinks, c.watchable))
	mux.Handle("POST "+faultsPath+"/{fault}", c.allow(access.PauseSink, c.cause))
}

// Broken is the data of the page of faults.
type Broken struct {
	Buttons []model.Fault
	Log     []model.FaultNote
	Sinks   []deliveries.SinkStatus
}

func (c *Console) broken(ctx context.Context) (any, error) {
	sinks, _ := c.source.Sinks(ctx) // empty while Redis is cut off; the page still shows its buttons
	return Broken{c.faults.Buttons(), c.faults.Log(), sinks}, nil
}

func (c *Console) cause(w http.ResponseWriter, r *http.Request, _ *access.Caller) {
	if err := c.faults.Cause(r.Context(), r.PathValue("fault")); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, faultsPath, http.StatusSeeOther)
}
