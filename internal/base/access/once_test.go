package access

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An Idempotency-Key that is accepted is printable ASCII of at most 255 characters.
func FuzzIdempotencyKey(f *testing.F) {
	for _, text := range []string{"", "k", "a b", "\x7f", "é", "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if (&Request{Key: text}).Check() == nil {
			require.Regexp(t, `^[!-~]{1,255}$`, text)
		}
	})
}
