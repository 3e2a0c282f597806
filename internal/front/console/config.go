package console

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Authority identifies callers. access.Authority is one; its errors are access.ErrUnauthorized, or those of the
// ledger.
type Authority interface {
	Identify(ctx context.Context, key string) (access.Caller, error)
	StartSession(ctx context.Context, key string, lasts time.Duration) (session string, err error)
	Session(ctx context.Context, session string) (access.Caller, error)
	EndSession(ctx context.Context, session string) error
}

// Deps are the dependencies of a Console.
type Deps struct {
	Source  Source
	Actions Actions
	// Operations returns the operations that a caller may do.
	Operations func(who *access.Caller) Operations
	Authority  Authority
	Log        *zap.Logger
	// Faults are the faults of a development server; nil for every other server.
	Faults Faults
	// Deployment is the deployment's id.
	Deployment string
	// TLS: the listener uses TLS, so the cookie is for TLS only.
	TLS bool
}

func (d *Deps) check(cfg *configs.Console) error {
	err := cfg.Check()
	if d.Source == nil || d.Actions == nil || d.Operations == nil || d.Authority == nil || d.Log == nil || d.Deployment == "" {
		err = errors.Join(err, errors.New("Source, Actions, Operations, Authority, Log and Deployment are required"))
	}
	return err
}
