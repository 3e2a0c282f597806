package configs

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/knob"
)

// Console is the pages of `hongbao serve`.
type Console struct {
	// Pages only show: nobody can change anything with them, whatever his role.
	ReadOnly bool `knob:"console.read_only,common" default:"false"`
	// How often a page that somebody watches is read anew.
	Every time.Duration `knob:"console.every" default:"1s" want:"100ms to 1m"`
	// How long a login is good for. It ends with its key before that.
	SessionTime time.Duration `knob:"console.session_time" default:"8h" want:"1m to 168h"`
	// Pages that are watched at once by all people together; one more is told to come later.
	Watchers int `knob:"console.watchers" default:"200" want:"1 to 10_000 pages"`
}

// Check names everything that is wrong with the knobs at once.
func (c *Console) Check() error { return errors.Join(knob.Check(c)...) }
