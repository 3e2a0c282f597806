package db

import "context"

// Indexer is a store that can create an index while others write to the table. It can't do so in a transaction. A
// repeated call changes nothing.
type Indexer interface {
	MakeIndex(ctx context.Context, index string) error
}

// Granter is a store whose other users need rights on the tables. A repeated call changes nothing.
type Granter interface {
	Grant(ctx context.Context) error
}

// Migrator is a store that can't change the schema in a transaction, so it has its own way to run each step once.
type Migrator interface {
	// Migrate runs the steps that the database lacks. It changes nothing if check returns an error for those that it has.
	Migrate(ctx context.Context, steps []Step, check func(has *Schema) error) (done []string, err error)
}

// RightsChecker is a Database that can ask which rights its user lacks on tables, as in "DELETE on archive, grants".
type RightsChecker interface {
	Denied(ctx context.Context, t Txn, tables []string) ([]string, error)
}

// FallsBack is a Database whose server may fall back from semi-synchronous to asynchronous replication. Then a failover
// may lose what it confirms.
type FallsBack interface {
	// Asynchronous reports whether the server has fallen back.
	Asynchronous(ctx context.Context, t Txn) (bool, error)
}
