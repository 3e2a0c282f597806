package app

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

// Grabbed is the answer to a grab, with the request id that a repeat needs.
type Grabbed struct {
	hongbao.Answer
	RequestID string `json:"request_id,omitempty"`
}

// Grab makes one grab.
func (a *App) Grab(ctx context.Context, g *hongbao.Grab) (out Grabbed, err error) {
	cfg := a.Config.ProducerConfig()
	cfg.Redis, cfg.Space, cfg.Log = a.redis, a.store.Space(), a.log
	p, err := producer.New(cfg)
	if err != nil {
		return out, err
	}
	if out.Answer, err = p.Grab(ctx, g); err != nil {
		return out, err
	}
	out.RequestID = g.RequestID // drawn by the producer, if the grab had none
	return out, p.Close(context.WithoutCancel(ctx))
}
