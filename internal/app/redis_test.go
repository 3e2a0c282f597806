package app

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What opens the ledger and not Redis, as recover may, knows the founding too.
func TestFoundingIsKnownFromEither(t *testing.T) {
	t.Parallel()
	var none, ledger, redis founding
	require.Empty(t, none.known())
	require.NoError(t, ledger.asLedger("aaaa"))
	require.Equal(t, "aaaa", ledger.known())
	require.NoError(t, redis.asRedis("aaaa"))
	require.Equal(t, "aaaa", redis.known())
	require.Error(t, redis.asLedger("bbbb"))
}
