package model

import "time"

// Question asks for the trails of a user's grants, or for the trail of a packet.
type Question struct {
	Campaign, User string
	Packet         int64
}

// Trails is the answer to a Question. Nothing says why a user has no grant. Notes name the servers that could not be read.
type Trails struct {
	Zone    string // of the campaign
	List    []Trail
	Nothing Sentence
	Notes   []Sentence
}

// Trail is what became of one grant.
type Trail struct {
	Packet       int64
	User, Amount string
	// Clauses are the sentence about the grant, and Steps its path.
	Clauses  []Sentence
	Steps    []TrailStep
	Stations []StoreView
}

// TrailStep is a step on the path of a grant. At is zero if it is not known, or if the step has not happened.
type TrailStep struct {
	At    time.Time
	State string // as in `hongbao why --json`
	Name  Sentence
	Text  Sentence
}

// StoreView is one of the places where a grant should be, such as Redis or the ledger.
type StoreView struct {
	Name Sentence
	// Present says whether the grant is in this place. If not, Text says why, or what is missing.
	Present bool
	Text    Sentence
}
