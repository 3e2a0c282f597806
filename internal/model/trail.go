package model

// Question asks for the trails of a user's grants, or for the trail of a packet.
type Question struct {
	Campaign, User string
	Packet         int64
}

// Trails is the answer to a Question. Notes name the servers that could not be read.
type Trails struct {
	List  []Trail
	Notes []Sentence
}

// Trail is where one grant is.
type Trail struct {
	Packet       int64
	User, Amount string
	Stations     []StoreView
}

// StoreView is one of the places where a grant should be, such as Redis or the ledger.
type StoreView struct {
	Name Sentence
	// Present says whether the grant is in this place. If not, Text says why, or what is missing.
	Present bool
	Text    Sentence
}
