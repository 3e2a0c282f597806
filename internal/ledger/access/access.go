// Package access keeps in the ledger's database who may act, and who has acted: the API keys, the console's sessions, the
// journal and the jobs. Package internal/base/access has their values and rules.
package access

import "github.com/hongbao-project/hongbao/internal/ledger/tables"

// Access is the part of a ledger's database with the API keys, the sessions, the journal and the jobs. All methods are safe for
// concurrent use. Within tables.DB.Together they are a part of that transaction.
type Access struct{ tables *tables.DB }

// Of returns the Access of a ledger's database.
func Of(t *tables.DB) Access { return Access{t} }
