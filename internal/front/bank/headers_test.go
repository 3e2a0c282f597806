package bank

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// A key that is accepted is a valid id without quotes and backslashes, with or without quotes around it.
func FuzzIdempotencyKey(f *testing.F) {
	for _, text := range []string{"", `"`, `""`, `"k"`, "k", `"k`, `k"`, `\`, "-", `"-"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := readKey(&http.Request{Header: http.Header{"Idempotency-Key": {text}}})
		if err != nil {
			return
		}
		require.NoError(t, hongbao.CheckID(key))
		require.NotContains(t, key, `"`)
		require.NotContains(t, key, `\`)
		require.Contains(t, []string{key, `"` + key + `"`}, text)
	})
}
