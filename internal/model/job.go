package model

import (
	"encoding/json"
	"time"
)

// Job is work that a person or a program has started at a server, and that goes on after the answer. The ledger has a
// row for each, so every server of the deployment shows it.
type Job struct {
	ID string
	// Name says what the job works on. One job of a name runs at a time. Order is the hash of its other parameters.
	Name, Order string
	What        Sentence
	By          string // the API key that started it
	Campaign    string // empty if the job does not belong to one campaign
	// Stopper is the action that a caller must be allowed in order to stop the job; "" if nobody can stop it.
	Stopper string
	Owner   string // the process that runs it
	// Began, Seen and Ended are when it began, when its owner was alive last, and when it ended. Ended is zero while it runs.
	Began, Seen, Ended time.Time
	// Step is what it does now, in English. Done of Of parts of that are done; Of is 0 if it counts none.
	Step     string
	Done, Of int64
	StopBy   string // the API key that asked it to stop; empty if nobody has
	Error    string
	// Lost says that it ended with its process: nobody knows how far it came.
	Lost   bool
	Result json.RawMessage // nil if there is none, or if it is too long
}

// Running reports whether the job runs.
func (j *Job) Running() bool { return j.Ended.IsZero() }

// Took returns how long the job took.
func (j *Job) Took() time.Duration { return max(j.Ended.Sub(j.Began), time.Millisecond) }
