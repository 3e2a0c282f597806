package model

import "time"

// Fault is a button that causes a fault on a development server.
type Fault struct{ Name, Label, What string }

// FaultNote is a sentence that describes an effect of a fault.
type FaultNote struct {
	At       time.Time
	Sentence string
}
