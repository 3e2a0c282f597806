package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A change that arrives while control opens Redis waits for a moment, and is not refused.
func TestAChangeWaitsUntilRedisIsOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &administration{opened: make(chan struct{})}
		begun := time.Now()
		require.False(t, a.isOpened(t.Context()))
		require.Equal(t, openPatience, time.Since(begun))
		time.AfterFunc(openPatience/2, func() { close(a.opened) })
		require.True(t, a.isOpened(t.Context()))
		require.Equal(t, openPatience*3/2, time.Since(begun))
		require.True(t, a.isOpened(t.Context()))
		require.Equal(t, openPatience*3/2, time.Since(begun), "later changes don't wait")
	})
}
