package console

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/knob"
)

// Config of a Console.
type Config struct {
	// Pages only show: nobody can change anything with them, whatever his role.
	ReadOnly bool `knob:"console.read_only,common" default:"false"`
	// How often a page that somebody watches is read anew.
	Every time.Duration `knob:"console.every" default:"1s" want:"100ms to 1m"`
	// How long a login is good for. It ends with its key before that.
	SessionTime time.Duration `knob:"console.session_time" default:"8h" want:"1m to 168h"`
	// Pages that are watched at once by all people together; one more is told to come later.
	Watchers int `knob:"console.watchers" default:"200" want:"1 to 10_000 pages"`
}

// Authority says who calls. access.Authority is one; its errors are access.ErrUnauthorized, or those of the ledger.
type Authority interface {
	Identify(ctx context.Context, key string) (access.Caller, error)
	StartSession(ctx context.Context, key string, lasts time.Duration) (session string, err error)
	Session(ctx context.Context, session string) (access.Caller, error)
	EndSession(ctx context.Context, session string) error
}

// Deps are what a Console works with.
type Deps struct {
	Source    Source
	Actions   Actions
	Authority Authority
	Log       *zap.Logger
	// Faults are those of a development server; nil everywhere else.
	Faults Faults
	// Deployment is the deployment's id.
	Deployment string
	// TLS: the listener is reached by TLS, so the cookie is for TLS only.
	TLS bool
}

// Check tells everything that is wrong with the configuration at once.
func (c *Config) Check() error { return errors.Join(knob.Check(c)...) }

func (d *Deps) check(cfg *Config) error {
	err := cfg.Check()
	if d.Source == nil || d.Actions == nil || d.Authority == nil || d.Log == nil || d.Deployment == "" {
		err = errors.Join(err, errors.New("Source, Actions, Authority, Log and Deployment are required"))
	}
	return err
}
