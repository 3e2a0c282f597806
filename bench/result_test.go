package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every second round has the reverse order, and the figures stay with their functions.
func TestRoundsAlternate(t *testing.T) {
	t.Parallel()
	order := ""
	named := func(name string, v float64) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) { order += name; return v, nil }
	}
	all, err := inTurn(t.Context(), 3, named("a", 1), named("b", 2))
	require.NoError(t, err)
	require.Equal(t, "ab"+"ba"+"ab", order)
	require.Equal(t, [][]float64{{1, 1, 1}, {2, 2, 2}}, all)
}
