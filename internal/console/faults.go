package console

import (
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao/internal/access"
)

// Faults breaks something on purpose. Only `hongbao dev` has it.
type Faults interface {
	State() FaultState
	// Do does what a button says, and tells what happens in the state's events.
	Do(name string) error
}

// FaultState is what is broken, and what has happened so far, the newest first.
type FaultState struct {
	Buttons []FaultButton
	Events  []FaultEvent
}

// FaultButton is one thing that can be broken, or mended.
type FaultButton struct{ Name, Text, State string }

// FaultEvent is a thing that happened.
type FaultEvent struct {
	At   time.Time
	Text string
}

// fault presses a button.
func (c *Console) fault(w http.ResponseWriter, r *http.Request, _ *access.Caller) {
	if c.faults == nil {
		c.fail(w, r, http.StatusNotFound, "There is no such page.")
		return
	}
	if err := c.faults.Do(r.PostFormValue("name")); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, "/faults", http.StatusSeeOther)
}
