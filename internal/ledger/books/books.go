// Package books adds up what the ledger has paid: the totals of campaigns, days, the conservation of money, seals and
// archives. With package ledger, which moves the money, it shares only the access to the tables. So a check does not
// repeat a mistake of what it checks.
package books

import "github.com/hongbao-project/hongbao/internal/ledger/tables"

// Books are the accounts of a ledger. All methods are safe for concurrent use. Within tables.DB.Together they are a part
// of that transaction.
type Books struct{ tables *tables.DB }

// Of returns the Books of a ledger's database.
func Of(t *tables.DB) Books { return Books{t} }
