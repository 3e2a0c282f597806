package local

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
)

// The wait for the shard outlives an outage and what Redis has lost; each is told once.
func TestAwaitOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &Deployment{tell: NewTeller(&out), epoch: 3}
		away := hongbao.Outagef(hongbao.ClassTransient, "Redis does not answer")
		errs := []error{away, away, nil, away, app.Found("the shard has lost grants"), app.Found("the shard has lost grants")}
		asked := 0
		require.NoError(t, d.awaitOpen(t.Context(), func(context.Context) (epoch int64, frozen bool, err error) {
			asked++
			if asked <= len(errs) {
				return 3, true, errs[asked-1]
			}
			return 4, asked == len(errs)+1, nil
		}))
		require.Equal(t, len(errs)+2, asked)
		require.Equal(t, 1, strings.Count(out.String(), "Redis does not answer"), out.String())
		require.Equal(t, 1, strings.Count(out.String(), "Redis has lost something"), out.String())
		broken := hongbao.Errorf(hongbao.ClassPermanent, "wrong password")
		require.ErrorIs(t, d.awaitOpen(t.Context(), func(context.Context) (int64, bool, error) { return 0, true, broken }), broken)
		ctx, cancel := context.WithCancel(t.Context())
		require.Error(t, d.awaitOpen(ctx, func(context.Context) (int64, bool, error) {
			cancel()
			return 0, true, errors.New("asked too late")
		}))
	})
}
