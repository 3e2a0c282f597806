package console

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// Authority identifies callers; access.Authority implements it. Its errors are access.ErrUnauthorized or errors
// of the ledger.
type Authority interface {
	Identify(ctx context.Context, key string) (access.Caller, error)
	StartSession(ctx context.Context, key string, times access.SessionTimes) (session string, err error)
	Session(ctx context.Context, session string) (access.Caller, error)
	KeepSession(ctx context.Context, session string, times access.SessionTimes) error
	EndSession(ctx context.Context, session string) error
	// Link returns the caller that has a link to a campaign.
	Link(ctx context.Context, text string) (access.Caller, error)
}

// Deps has the dependencies of a Console.
type Deps struct {
	Source  Source
	Actions Actions
	// Operations returns the operations that the caller's role and scope permit.
	Operations func(who *access.Caller) Operations
	Authority  Authority
	Jobs       *jobs.Registry
	Log        *zap.Logger
	// Faults causes faults on a development server; it is nil on other servers.
	Faults Faults
	// Deployment is the id of the deployment.
	Deployment string
	// TLS reports whether the listener uses TLS. Then browsers send the session cookie only over TLS.
	TLS bool
}

func (d *Deps) check(cfg *configs.Console) error {
	err := cfg.Check()
	if d.Source == nil || d.Actions == nil || d.Operations == nil || d.Authority == nil || d.Jobs == nil || d.Log == nil || d.Deployment == "" {
		err = errors.Join(err, errors.New("Source, Actions, Operations, Authority, Jobs, Log and Deployment are required"))
	}
	return err
}
