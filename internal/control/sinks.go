package control

import (
	"context"
	"net/http"

	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/app"
)

// sinksAnswer is app.Status.
type sinksAnswer struct {
	Sinks []app.SinkStatus `json:"sinks" nullable:"false"`
}

func sinkOperations() []operation {
	return []operation{{
		method: http.MethodGet, path: "/v1/sinks", id: "list-sinks", summary: "How all sinks stand",
		description: "Gives for each sink what waits and since when, what is parked and dead, and its workers, by shard.",
		action:      access.ReadSinks, answer: sinksAnswer{},
		do: plainRead(func(ctx context.Context, c *call) (any, error) {
			s, err := c.app.Status(ctx)
			if err != nil {
				return nil, err
			}
			return sinksAnswer{s.Sinks}, nil
		}),
	}}
}
