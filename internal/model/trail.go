package model

// Question asks for a trail: of a user, or of a packet.
type Question struct {
	Campaign, User string
	Packet         int64
}

// Trails is the answer to a Question. Notes name the servers that could not be read.
type Trails struct {
	List  []Trail
	Notes []string
}

// Trail is where one grant is.
type Trail struct {
	Packet       int64
	User, Amount string
	Stations     []Station
}

// Station is a place where a grant is, or is not.
type Station struct {
	Name string
	// There reports that the grant is in this place. Otherwise Text says why not, or what is missing.
	There bool
	Text  string
}
