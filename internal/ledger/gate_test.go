package ledger

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

// An error of a gate is what a broken connection to a database server would be at the same moment.
func TestGateOfATransaction(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		at      sqlite.Moment
		class   hongbao.Class
		changed bool
	}{{sqlite.GateBegin, hongbao.ClassTransient, false}, {sqlite.GateCommit, hongbao.ClassUnknown, false}, {sqlite.GateAnswer, hongbao.ClassUnknown, true}} {
		failing := sqlite.Moment(-1)
		cfg := DefaultConfig()
		cfg.Database = sqlite.Database{Path: filepath.Join(t.TempDir(), "ledger.db"), Gate: func(_ context.Context,
			at sqlite.Moment) error {
			if at == failing {
				return broken
			}
			return nil
		}}
		_, err := Migrate(t.Context(), cfg)
		require.NoError(t, err)
		l, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		failing = c.at
		err = l.KeepControls(t.Context(), stream.Control{Kind: "sink", Sink: "kafka", Value: "1", Rev: 1,
			Decision: stream.Decision{By: "ann", Why: "a test"}, At: time.Now()})
		require.ErrorIs(t, err, broken)
		require.Equal(t, c.class, hongbao.ClassOf(err), err)
		failing = -1
		kept, err := l.Controls(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.changed, len(kept) == 1)
		require.NoError(t, l.Close())
	}
}
