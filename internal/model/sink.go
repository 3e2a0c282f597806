package model

// Sink is the state of a sink. Unread names the shards that could not be read, and why.
type Sink struct {
	Name    string
	Waiting int64 // grants
	Held    int64 // entries in the workers' hands
	Parked  int64 // entries
	Dead    int64
	Oldest  float64 // seconds
	// State is working, paused, no_worker, behind or unread; Why says why it is not working.
	State, Why string
	Paused     bool
	// Campaigns are paused for this sink only; each text says by whom and why.
	Campaigns []string
	Unread    []string
	Workers   []Worker
}

// Worker is a worker of a sink.
type Worker struct {
	Name  string
	Alive bool
	Seen  float64 // seconds ago
	Holds int64   // entries
}
