package db

import "errors"

// ErrAgain marks a transaction that the database rolled back because of a conflict with another one. The caller retries
// it.
var ErrAgain = errors.New("the transaction lost a conflict with another one")

// ErrOverdraw marks a transaction that violated a CHECK constraint on money.
var ErrOverdraw = errors.New("it would pay more than was funded")

// ErrNewerSchema says that the schema was updated while this program runs, and that this build can't work with it, so
// the program can't write to the ledger any more. Errors that wrap it are outages, so no attempt is counted.
var ErrNewerSchema = errors.New("the ledger's schema is newer than this build can work with, so it writes nothing: " +
	"upgrade this program")

// MissingError says that the database does not exist. Errors that wrap it are Broken.
type MissingError struct{ What string }

func (e *MissingError) Error() string { return "there is no " + e.What }
