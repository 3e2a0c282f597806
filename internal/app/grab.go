package app

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

// Grabbed is the answer to a grab, with the request id for repeats.
type Grabbed struct {
	hongbao.Answer
	RequestID string `json:"request_id,omitempty"`
}

// Grab makes one grab with a producer of its own.
func (a *App) Grab(ctx context.Context, g *hongbao.Grab) (out Grabbed, err error) {
	cfg := a.Config.Producer
	cfg.Deployment = a.Deployment()
	p, err := producer.New(cfg)
	if err != nil {
		return out, err
	}
	if out.Answer, err = p.Grab(ctx, g); err != nil {
		return out, err
	}
	out.RequestID = g.RequestID // if the grab had no request id, the producer has set it
	return out, p.Close(context.WithoutCancel(ctx))
}
