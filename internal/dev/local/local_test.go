package local

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// AwaitOpen retries while the shard is frozen or Redis fails. After a long wait it names the command that shows
// the cause, once.
func TestAwaitOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frozen  int // reads
		reports int
	}{"soon": {10, 0}, "late": {200, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				d := &Deployment{say: SayTo(&out), epoch: 3, ConfigFile: "hongbao.yaml"}
				reads := 0
				require.NoError(t, d.AwaitOpen(t.Context(), func(context.Context) (store.Head, error) {
					reads++
					switch {
					case reads <= c.frozen/2:
						return store.Head{}, hongbao.Outagef(hongbao.ClassTransient, "%w", store.ErrFrozen)
					case reads <= c.frozen:
						return store.Head{Epoch: 3}, nil // no worker has noticed yet that Redis was restarted
					}
					return store.Head{Epoch: 4}, nil
				}))
				synctest.Wait()
				require.Equal(t, c.frozen+1, reads)
				require.Equal(t, c.reports, strings.Count(out.String(), "`hongbao recover --config hongbao.yaml`"), out.String())
			})
		})
	}
}

// AwaitOpen stops when ctx ends or an error is permanent.
func TestAwaitOpenEnds(t *testing.T) {
	t.Parallel()
	d := &Deployment{say: SayTo(&bytes.Buffer{}), epoch: 3}
	broken := hongbao.Errorf(hongbao.ClassPermanent, "wrong password")
	fails := func(context.Context) (store.Head, error) { return store.Head{}, broken }
	require.ErrorIs(t, d.AwaitOpen(t.Context(), fails), broken)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.Error(t, d.AwaitOpen(ctx, func(context.Context) (store.Head, error) {
		return store.Head{Epoch: 4}, hongbao.Errorf(hongbao.ClassTransient, "down")
	}))
	require.NoError(t, (&Deployment{}).AwaitOpen(t.Context(), fails), "a new deployment is open")
}
