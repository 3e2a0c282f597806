package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// A caller gives up while its transaction begins. SQLite may have begun it, although the driver returns an error: the next
// caller gets a connection without it.
func TestGivenUpWhileItBegins(t *testing.T) {
	t.Parallel()
	s := open(t)
	nothing := func(db.Txn) ([]db.Stmt, error) { return nil, nil }
	for _, write := range []bool{true, false} {
		run := func(ctx context.Context) error {
			if write {
				return s.Write(ctx, nothing)
			}
			return s.Read(ctx, func(db.Txn) error { return nil })
		}
		gaveUp := 0
		for i := range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(time.Duration(i%200)*time.Microsecond, cancel)
			if run(ctx) != nil {
				gaveUp++
			}
			stop.Stop()
			cancel()
			require.NoError(t, run(t.Context()))
		}
		require.Positive(t, gaveUp)
	}
}
