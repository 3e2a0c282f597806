package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Unreadable is the action of a note that stands for an entry which could not be written.
const Unreadable Action = "unreadable"

// NoteID returns the id of the note for an unusable entry. It depends only on the entry's text, so a repeat adds no
// second note. It has the form of other ids.
func NoteID(text string) string { return "UNREADABLE" + strings.ToUpper(Hash(text)[:32]) }

// ThroughRedis is the field of an entry's details with the time at which the entry was moved from Redis to the ledger.
// Anyone who may write to Redis could have written such an entry, or changed it.
const ThroughRedis = "through_redis"

// CameThroughRedis marks an entry that waited in Redis until now.
func (e *Entry) CameThroughRedis(now time.Time) {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[ThroughRedis] = now.UTC().Format(time.RFC3339)
}

const (
	// maxWaitingText is the maximum length of a waiting entry, in bytes. It exceeds that of every valid entry.
	maxWaitingText = 64 << 10
	// maxWaitingDetails bounds the details, so that the ledger does not leave them out together with their mark.
	maxWaitingDetails = 15 << 10
	// maxAhead is how far the clock of the process that wrote an entry may be ahead.
	maxAhead = 5 * time.Minute
)

var (
	entryID     = regexp.MustCompile("^[A-Z2-7]{26}$") // as rand.Text draws it
	entryAction = regexp.MustCompile("^[a-z][a-z_]{0,63}$")
	outcomes    = []Outcome{OutcomeDone, OutcomeRefused, OutcomeFailed, OutcomeUnknown, OutcomeDenied}
	// earliest is before every entry of a journal.
	earliest = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
)

// ReadWaiting parses an entry that waited in Redis, and marks it. It returns an error if a field has a value that no
// process writes.
func ReadWaiting(text string, now time.Time) (e Entry, err error) {
	if len(text) > maxWaitingText {
		return e, fmt.Errorf("it has %d bytes, more than an entry can have", len(text))
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return e, fmt.Errorf("it is no entry: %w", err)
	}
	switch {
	case !entryID.MatchString(e.ID):
		err = errors.New("its id is none that a process draws")
	case e.Time.Before(earliest) || e.Time.After(now.Add(maxAhead)):
		err = errors.New("its time can't be true")
	case e.Who == "" || !entryAction.MatchString(string(e.Action)) || !slices.Contains(outcomes, e.Outcome):
		err = errors.New("its actor, its action or its outcome is none that a process writes")
	}
	if details, err := json.Marshal(e.Details); err != nil || len(details) > maxWaitingDetails {
		e.Details = map[string]any{"left_out": "too long"}
	}
	e.CameThroughRedis(now)
	return e, err
}
