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
)

// Authority identifies callers; access.Authority implements it.
type Authority interface {
	Identify(ctx context.Context, keyText string) (access.Caller, error)
}

// Config configures a Control.
type Config struct {
	// AnswerTime is the time limit for a request.
	AnswerTime time.Duration
	// Patience is how long a request waits for its task. After that the answer is 202, and the task continues.
	Patience time.Duration
}

// Control serves the administration API. It is safe for concurrent use.
type Control struct {
	cfg       Config
	app       *app.App
	authority Authority
	log       *zap.Logger
	tasks     *tasks
}

// New returns a Control. Close ends it.
func New(a *app.App, authority Authority, log *zap.Logger, cfg Config) (*Control, error) {
	if a == nil || authority == nil || log == nil || cfg.AnswerTime <= 0 || cfg.Patience <= 0 {
		return nil, errors.New("control: the app, the authority, the log and every field of Config are required")
	}
	return &Control{cfg: cfg, app: a, authority: authority, log: log, tasks: newTasks(log)}, nil
}

// Close stops the tasks that outlived their requests, and waits for them. A later request for the same load or replay
// continues the work.
func (c *Control) Close() { c.tasks.close() }

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
