package configs

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Console has the settings of the console's pages.
type Console struct {
	// Whether the pages are read-only for every role.
	ReadOnly bool `knob:"console.read_only,common" default:"false"`
	// Time between two readings of the data of a live page.
	Every time.Duration `knob:"console.every" default:"1s" want:"100ms to 1m"`
	// How long a login is valid. A login ends earlier if its API key ends.
	SessionTime time.Duration `knob:"console.session_time" default:"8h" want:"1m to 168h"`
	// After this time without a request, a login ends. The updates of an open live page are no requests, except those of
	// a campaign, from an hour before its window to the window's end. The end may be up to a thirtieth earlier. No login
	// lasts longer than console.session_time.
	IdleTime time.Duration `knob:"console.idle_time" default:"30m" want:"1m to 168h"`
	// The most open live pages. Further pages get the status 503 with Retry-After.
	Watchers int `knob:"console.watchers" default:"200" want:"1 to 10_000 pages"`
}

// Check returns everything that is wrong with the knobs.
func (c *Console) Check() error { return errors.Join(knob.Check(c)...) }
