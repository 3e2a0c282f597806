package model

import "time"

// Progress is how far a replay is.
type Progress struct {
	Name, What string
	Begun      time.Time
	// Done of Of events were looked at.
	Done, Of int64
	Ended    bool
}
