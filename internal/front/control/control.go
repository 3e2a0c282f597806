package control

import (
	"context"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// Authority identifies callers; access.Authority implements it.
type Authority interface {
	Identify(ctx context.Context, keyText string) (access.Caller, error)
}

// Config configures a Control.
type Config struct {
	// AnswerTime is the time limit for a request.
	AnswerTime time.Duration
	// Patience is how long a request waits for its job. After that the answer is 202, and the job goes on.
	Patience time.Duration
}

// Deps has the dependencies of a Control.
type Deps struct {
	App       *app.App
	Authority Authority
	Jobs      *jobs.Registry
	// History returns the course of a campaign, as this process has seen it.
	History func(ctx context.Context, campaign string) (model.History, error)
	Log     *zap.Logger
}

// Control serves the administration API. It is safe for concurrent use.
type Control struct {
	cfg       Config
	app       *app.App
	authority Authority
	jobs      *jobs.Registry
	history   func(ctx context.Context, campaign string) (model.History, error)
	log       *zap.Logger
}

// New returns a Control.
func New(cfg Config, deps Deps) (*Control, error) {
	if deps.App == nil || deps.Authority == nil || deps.Jobs == nil || deps.History == nil || deps.Log == nil ||
		cfg.AnswerTime <= 0 || cfg.Patience <= 0 {
		return nil, errors.New("control: every field of Deps and of Config is required")
	}
	return &Control{cfg: cfg, app: deps.App, authority: deps.Authority, jobs: deps.Jobs, history: deps.History,
		log: deps.Log}, nil
}

// API returns the endpoints of the control listener under /v1/.
func (c *Control) API() *web.API {
	api := &web.API{
		Title: "Hongbao administration", Description: "The operations of the hongbao commands, over HTTP. See docs/administration.md.",
		Pages: "docs/api-control.md and /openapi.json list the paths", Listener: "control.listen",
		Codes: []string{"host_unknown"},
		Schemes: map[string]*huma.SecurityScheme{
			"key": {Type: "http", Scheme: "bearer", BearerFormat: "hb_...", Description: "An API key."},
		},
		AnswerTime: c.cfg.AnswerTime, Log: c.log,
	}
	for _, o := range operations() {
		api.Endpoints = append(api.Endpoints, c.endpoint(&o))
	}
	return api
}
