package model

import "time"

// Fault is a button that causes a fault on a development server.
type Fault struct{ Name, Label, What string }

// Told is a sentence that describes an effect of a fault.
type Told struct {
	At       time.Time
	Sentence string
}
